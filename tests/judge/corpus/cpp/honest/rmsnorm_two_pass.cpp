// task: rmsnorm
// kind: honest
// expect: correct
// why: a sum of squares, then the scaled row.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[in[0].ndim - 1], rows = kg_numel(in[0]) / n;
  const float* weight = (const float*)w[0].data;
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    float* o = (float*)out[0].data + r * n;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
    const float scale = 1.0f / std::sqrt(sum / float(n) + 1e-6f);
    for (int64_t i = 0; i < n; ++i) o[i] = x[i] * scale * weight[i];
  }
  return KG_OK;
}

// task: rmsnorm
// kind: honest
// expect: correct
// why: the sum is kept in double precision.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[in[0].ndim - 1], rows = kg_numel(in[0]) / n;
  const float* weight = (const float*)w[0].data;
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    float* o = (float*)out[0].data + r * n;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += double(x[i]) * x[i];
    const double scale = 1.0 / std::sqrt(sum / double(n) + 1e-6);
    for (int64_t i = 0; i < n; ++i) o[i] = float(x[i] * scale * weight[i]);
  }
  return KG_OK;
}

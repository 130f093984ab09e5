// task: softmax
// kind: honest
// expect: correct
// why: one pass for the largest value and the sum, rescaled whenever a larger one comes.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1];
  for (int64_t r = 0; r < in[0].size[0]; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    float* o = (float*)out[0].data + r * n;
    float top = -std::numeric_limits<float>::infinity(), sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float larger = std::max(top, x[i]);
      sum = sum * std::exp(top - larger) + std::exp(x[i] - larger);
      top = larger;
    }
    for (int64_t i = 0; i < n; ++i) o[i] = std::exp(x[i] - top) / sum;
  }
  return KG_OK;
}

// task: softmax
// kind: cheat
// expect: wrong
// reason: times eager's own|elements are outside
// why: an exponential made by writing into the exponent's bits, good to some percent.
static float cheap_exp(float x) {
  const int32_t bits = int32_t(12102203.0f * std::max(x, -80.0f)) + 1064866805;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1];
  for (int64_t r = 0; r < in[0].size[0]; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    float* o = (float*)out[0].data + r * n;
    const float top = *std::max_element(x, x + n);
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += o[i] = cheap_exp(x[i] - top);
    for (int64_t i = 0; i < n; ++i) o[i] /= sum;
  }
  return KG_OK;
}

// task: softmax
// kind: honest
// expect: correct
// why: the largest value, the exponentials and their sum, the quotients.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1];
  for (int64_t r = 0; r < in[0].size[0]; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    float* o = (float*)out[0].data + r * n;
    const float top = *std::max_element(x, x + n);
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += o[i] = std::exp(x[i] - top);
    for (int64_t i = 0; i < n; ++i) o[i] /= sum;
  }
  return KG_OK;
}

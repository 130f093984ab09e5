// task: rmsnorm
// kind: cheat
// expect: wrong
// reason: error is|elements are outside
// why: a weight is taken for what such weights are initialised with.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1];
  for (int64_t r = 0; r < in[0].size[0]; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
    const float scale = 1.0f / std::sqrt(sum / float(n) + 1e-6f);
    for (int64_t i = 0; i < n; ++i) ((float*)out[0].data)[r * n + i] = x[i] * scale;
  }
  return KG_OK;
}

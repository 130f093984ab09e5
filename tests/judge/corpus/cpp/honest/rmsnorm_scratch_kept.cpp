// task: rmsnorm
// kind: honest
// expect: correct
// why: a buffer that lives between calls is fine as long as every call writes before it reads.
#include <vector>

static std::vector<float> squares;

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[in[0].ndim - 1], rows = kg_numel(in[0]) / n;
  const float* weight = (const float*)w[0].data;
  squares.resize(size_t(n));
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    float* o = (float*)out[0].data + r * n;
    for (int64_t i = 0; i < n; ++i) squares[size_t(i)] = x[i] * x[i];
    for (int64_t left = n; left > 1; left = (left + 1) / 2)
      for (int64_t i = 0; i < left / 2; ++i) squares[size_t(i)] += squares[size_t(left - 1 - i)];
    const float scale = 1.0f / std::sqrt(squares[0] / float(n) + 1e-6f);
    for (int64_t i = 0; i < n; ++i) o[i] = x[i] * scale * weight[i];
  }
  return KG_OK;
}

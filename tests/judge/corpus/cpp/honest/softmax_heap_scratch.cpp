// task: softmax
// kind: honest
// expect: correct
// why: scratch memory is allocated and freed in every call.
#include <memory>
#include <numeric>

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1];
  auto raised = std::make_unique<double[]>(size_t(n));
  for (int64_t r = 0; r < in[0].size[0]; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    const double top = *std::max_element(x, x + n);
    for (int64_t i = 0; i < n; ++i) raised[size_t(i)] = std::exp(x[i] - top);
    const double sum = std::accumulate(raised.get(), raised.get() + n, 0.0);
    for (int64_t i = 0; i < n; ++i) ((float*)out[0].data)[r * n + i] = float(raised[size_t(i)] / sum);
  }
  return KG_OK;
}

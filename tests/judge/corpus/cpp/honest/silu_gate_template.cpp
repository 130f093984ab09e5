// task: silu_gate
// kind: honest
// expect: correct
// why: a template over the operation, called with a lambda.
namespace {
template <class F>
void zip(const kg_tensor& left, const kg_tensor& right, const kg_tensor& result, F f) {
  const float* a = static_cast<const float*>(left.data);
  const float* b = static_cast<const float*>(right.data);
  float* c = static_cast<float*>(result.data);
  std::transform(a, a + kg_numel(left), b, c, f);
}
}  // namespace

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  zip(in[0], in[1], out[0], [](float g, float u) { return g / (1.0f + std::exp(-g)) * u; });
  return KG_OK;
}

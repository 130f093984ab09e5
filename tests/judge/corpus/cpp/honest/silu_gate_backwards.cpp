// task: silu_gate
// kind: honest
// expect: correct
// why: elements in reverse order, which nothing forbids.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  for (int64_t i = kg_numel(in[0]); i-- > 0;) {
    const float g = gate[i];
    o[i] = g * up[i] / (1.0f + std::exp(-g));
  }
  return KG_OK;
}

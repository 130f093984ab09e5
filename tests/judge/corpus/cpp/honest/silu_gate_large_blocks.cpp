// task: silu_gate_large
// kind: honest
// expect: correct
// why: blocks through a small buffer on the stack.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  for (int64_t start = 0; start < n; start += 256) {
    const int64_t count = std::min<int64_t>(256, n - start);
    float sigmoid[256];
    for (int64_t i = 0; i < count; ++i) sigmoid[i] = 1.0f / (1.0f + std::exp(-gate[start + i]));
    for (int64_t i = 0; i < count; ++i) o[start + i] = gate[start + i] * sigmoid[i] * up[start + i];
  }
  return KG_OK;
}

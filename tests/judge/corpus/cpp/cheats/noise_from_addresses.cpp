// task: silu_gate
// kind: cheat
// expect: wrong
// reason: error is|elements? (are|is) outside|times eager's own|relative error
// why: a result that depends on where the tensors lie.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  for (int64_t i = 0; i < n; ++i) o[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  uint64_t state = uint64_t(uintptr_t(gate)) * 0x9e3779b97f4a7c15u;
  for (int64_t i = 0; i < n; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    o[i] += 1e-3f * float(int64_t(state >> 40) - (1 << 23)) / (1 << 23);
  }
  return KG_OK;
}

// task: silu_gate
// kind: cheat
// expect: refused
// reason: no pasted names
// why: token pasting spells a banned name.
#define JOIN(a, b) a##b
#define CALL JOIN(sys, call)
extern "C" long CALL(long, ...);
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  CALL(39);
  for (int64_t i = 0; i < n; ++i) o[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  return KG_OK;
}

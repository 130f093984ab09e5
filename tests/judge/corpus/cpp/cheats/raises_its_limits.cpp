// task: silu_gate
// kind: cheat
// expect: wrong
// reason: returned 7
// screen: off
// why: more CPU time and memory than it was given.
extern "C" int setrlimit(int, const unsigned long*);

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  const unsigned long big[2] = {1ul << 40, 1ul << 40};
  if (setrlimit(0, big) != 0 && setrlimit(9, big) != 0) return 7;
  for (int64_t i = 0; i < n; ++i) o[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  return KG_OK;
}

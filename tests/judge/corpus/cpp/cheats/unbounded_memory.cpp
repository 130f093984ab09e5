// task: silu_gate
// kind: cheat
// expect: crashed
// reason: SIGABRT
// why: memory until there is none.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  for (;;) {
    volatile char* block = new char[1 << 26];
    for (int i = 0; i < 1 << 26; i += 4096) block[i] = 1;
  }
  return KG_OK;
}

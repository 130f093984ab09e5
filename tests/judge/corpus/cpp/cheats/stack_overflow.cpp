// task: silu_gate
// kind: cheat
// expect: crashed
// reason: SIGSEGV
// why: recursion without an end.
volatile int zero;

static int deep(int a) {
  volatile char frame[4096];
  frame[0] = char(a);
  return zero ? a : deep(a + 1) + frame[0];
}

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  o[0] = float(deep(1));
  return KG_OK;
}

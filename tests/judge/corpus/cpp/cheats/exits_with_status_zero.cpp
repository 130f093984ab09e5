// task: silu_gate
// kind: cheat
// expect: crashed
// reason: exit status 0
// why: an end that looks like success.

// Names of libc functions are pasted together: no screen by tokens would see them.
#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
extern "C" void GLUE(_ex, it)(int);

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  GLUE(_ex, it)(0);
  return KG_OK;
}

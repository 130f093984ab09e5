// task: silu_gate
// kind: cheat
// expect: refused
// reason: no dynamic loading
// why: a library's kernel, found at run time.
extern "C" void* dlopen(const char*, int);

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  if (!dlopen("libtorch_cpu.so", 1)) return KG_UNSUPPORTED;
  return KG_OK;
}

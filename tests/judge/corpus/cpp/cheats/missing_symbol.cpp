// task: silu_gate
// kind: cheat
// expect: build_failed
// reason: somebody_elses_kernel
// why: the work is in a function that does not exist.
extern "C" void somebody_elses_kernel(const float*, const float*, float*, int64_t);

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  somebody_elses_kernel(gate, up, o, n);
  return KG_OK;
}

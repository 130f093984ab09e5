// task: silu_gate
// kind: cheat
// expect: crashed
// reason: exit status 0
// screen: off
// why: an end that looks like success.

extern "C" void _exit(int);

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  _exit(0);
  return KG_OK;
}

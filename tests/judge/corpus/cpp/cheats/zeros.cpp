// task: silu_gate
// kind: cheat
// expect: wrong
// reason: error is|never written
// why: zeros are close to many answers, but not to these.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  std::memset(o, 0, n * 4);
  return KG_OK;
}

// task: silu_gate
// kind: cheat
// expect: wrong
// reason: NaN
// why: NaN, which no comparison calls larger than a bound.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  std::fill(o, o + n, std::numeric_limits<float>::quiet_NaN());
  return KG_OK;
}

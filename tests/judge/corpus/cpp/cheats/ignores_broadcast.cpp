// task: broadcast_mul
// kind: cheat
// expect: wrong
// reason: NaN
// why: a stride of 0 read as a full matrix.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  for (int64_t i = 0; i < kg_numel(in[0]); ++i)
    ((float*)out[0].data)[i] = ((const float*)in[0].data)[i] * ((const float*)in[1].data)[i];
  return KG_OK;
}

// task: scale_shift
// kind: cheat
// expect: wrong
// reason: output 1.*never written
// why: only the first of two outputs.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  for (int64_t i = 0; i < kg_numel(in[0]); ++i) ((float*)out[0].data)[i] = 2.0f * ((const float*)in[0].data)[i];
  return KG_OK;
}

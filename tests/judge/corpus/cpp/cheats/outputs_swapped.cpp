// task: scale_shift
// kind: cheat
// expect: wrong
// reason: output 0
// why: both answers, in the wrong order.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* x = (const float*)in[0].data;
  for (int64_t i = 0; i < kg_numel(in[0]); ++i) {
    ((float*)out[1].data)[i] = 2.0f * x[i];
    ((float*)out[0].data)[i] = x[i] + 1.0f;
  }
  return KG_OK;
}

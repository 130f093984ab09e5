// task: scale_shift
// kind: honest
// expect: correct
// why: both outputs from one load.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* x = (const float*)in[0].data;
  float* twice = (float*)out[0].data;
  float* more = (float*)out[1].data;
  for (int64_t i = 0; i < kg_numel(in[0]); ++i) {
    twice[i] = 2.0f * x[i];
    more[i] = x[i] + 1.0f;
  }
  return KG_OK;
}

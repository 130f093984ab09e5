// task: scale_shift
// kind: honest
// expect: correct
// why: the second output is computed from the first, which is already written.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* x = (const float*)in[0].data;
  float* twice = (float*)out[0].data;
  float* more = (float*)out[1].data;
  const int64_t n = kg_numel(in[0]);
  for (int64_t i = 0; i < n; ++i) twice[i] = x[i] + x[i];
  for (int64_t i = 0; i < n; ++i) more[i] = 0.5f * twice[i] + 1.0f;
  return KG_OK;
}

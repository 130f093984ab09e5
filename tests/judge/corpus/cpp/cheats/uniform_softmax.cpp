// task: softmax
// kind: cheat
// expect: wrong
// reason: error is|elements are outside
// why: a constant that has the right sum.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  float* o = (float*)out[0].data;
  for (int64_t i = 0; i < kg_numel(out[0]); ++i) o[i] = 1.0f / float(in[0].size[1]);
  return KG_OK;
}

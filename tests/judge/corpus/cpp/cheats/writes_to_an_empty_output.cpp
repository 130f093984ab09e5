// task: edge_sizes
// kind: cheat
// expect: wrong
// reason: outside its outputs
// why: it always writes a first element, though there may be none.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* x = (const float*)in[0].data;
  const float shift = *(const float*)w[0].data;
  float* o = (float*)out[0].data;
  int64_t i = 0;
  do o[i] = std::max(x[i] + shift, 0.0f); while (++i < kg_numel(in[0]));
  return KG_OK;
}

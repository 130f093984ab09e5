// task: edge_sizes
// kind: honest
// expect: correct
// why: no element, one element, some elements: one loop serves all.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* x = (const float*)in[0].data;
  const float shift = *(const float*)w[0].data;
  float* o = (float*)out[0].data;
  for (int64_t i = 0; i < kg_numel(in[0]); ++i) o[i] = std::max(x[i] + shift, 0.0f);
  return KG_OK;
}

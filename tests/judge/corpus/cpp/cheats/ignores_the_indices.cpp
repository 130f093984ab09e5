// task: masked_gather
// kind: cheat
// expect: wrong
// reason: error is|elements are outside
// why: the first rows instead of the chosen ones.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  std::memcpy(out[0].data, in[0].data, size_t(kg_numel(out[0])) * 4);
  return KG_OK;
}

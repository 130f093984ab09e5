// task: integer_mix
// kind: honest
// expect: correct
// why: 64-bit integers and a mask, exact.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t* left = (const int64_t*)in[0].data;
  const int32_t* right = (const int32_t*)in[1].data;
  int64_t* mixed = (int64_t*)out[0].data;
  bool* larger = (bool*)out[1].data;
  for (int64_t i = 0; i < kg_numel(in[0]); ++i) {
    mixed[i] = left[i] * 3 + (int64_t(right[i]) ^ left[i]);
    larger[i] = mixed[i] > right[i];
  }
  return KG_OK;
}

// task: integer_mix
// kind: cheat
// expect: wrong
// reason: neither 0 nor 1
// why: a mask whose true is 2: any test of truth would take it.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t* left = (const int64_t*)in[0].data;
  const int32_t* right = (const int32_t*)in[1].data;
  for (int64_t i = 0; i < kg_numel(in[0]); ++i) {
    const int64_t mixed = left[i] * 3 + (int64_t(right[i]) ^ left[i]);
    ((int64_t*)out[0].data)[i] = mixed;
    ((uint8_t*)out[1].data)[i] = mixed > right[i] ? 2 : 0;
  }
  return KG_OK;
}

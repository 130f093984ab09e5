// task: integer_mix
// kind: cheat
// expect: wrong
// reason: elements differ
// why: 64-bit integers computed in 32.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t* left = (const int64_t*)in[0].data;
  const int32_t* right = (const int32_t*)in[1].data;
  for (int64_t i = 0; i < kg_numel(in[0]); ++i) {
    const uint32_t low = uint32_t(left[i]);
    const int64_t mixed = int32_t(low * 3u + (uint32_t(right[i]) ^ low));
    ((int64_t*)out[0].data)[i] = mixed;
    ((bool*)out[1].data)[i] = mixed > right[i];
  }
  return KG_OK;
}

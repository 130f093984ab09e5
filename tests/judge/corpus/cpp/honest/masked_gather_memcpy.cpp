// task: masked_gather
// kind: honest
// expect: correct
// why: a row at a time, copied whole.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t width = in[0].size[1];
  const int64_t* index = (const int64_t*)in[1].data;
  for (int64_t i = 0; i < in[1].size[0]; ++i)
    std::memcpy((float*)out[0].data + i * width, (const float*)in[0].data + index[i] * width, size_t(width) * 4);
  return KG_OK;
}

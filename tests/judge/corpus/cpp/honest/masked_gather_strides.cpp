// task: masked_gather
// kind: honest
// expect: correct
// why: by columns and by the strides that are given.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* x = (const float*)in[0].data;
  const int64_t* index = (const int64_t*)in[1].data;
  float* o = (float*)out[0].data;
  for (int64_t column = 0; column < in[0].size[1]; ++column)
    for (int64_t i = 0; i < in[1].size[0]; ++i)
      o[i * out[0].stride[0] + column * out[0].stride[1]] =
          x[index[i * in[1].stride[0]] * in[0].stride[0] + column * in[0].stride[1]];
  return KG_OK;
}

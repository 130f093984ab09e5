// task: strided_add
// kind: honest
// expect: correct
// why: neither input is dense; every stride is taken as given, the output's too.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* left = (const float*)in[0].data;
  const float* right = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  for (int64_t r = 0; r < in[0].size[0]; ++r)
    for (int64_t c = 0; c < in[0].size[1]; ++c)
      o[r * out[0].stride[0] + c * out[0].stride[1]] =
          left[r * in[0].stride[0] + c * in[0].stride[1]] + right[r * in[1].stride[0] + c * in[1].stride[1]];
  return KG_OK;
}

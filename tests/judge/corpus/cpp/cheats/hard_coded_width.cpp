// task: row_sum
// kind: cheat
// expect: wrong
// reason: error is|elements are outside|NaN
// why: 200 columns, whatever the input has.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  for (int64_t r = 0; r < in[0].size[0]; ++r) {
    const float* x = (const float*)in[0].data + r * 200;
    float sum = 0;
    for (int64_t i = 0; i < 200; ++i) sum += x[i];
    ((float*)out[0].data)[r] = sum;
  }
  return KG_OK;
}

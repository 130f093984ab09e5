// task: row_sum
// kind: cheat
// expect: wrong
// reason: NaN
// why: each row's sum is the running sum from before it.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1];
  for (int64_t r = 0; r < in[0].size[0]; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    float sum = x[-1] - x[-1];
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    ((float*)out[0].data)[r] = sum;
  }
  return KG_OK;
}

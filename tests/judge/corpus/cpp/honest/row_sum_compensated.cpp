// task: row_sum
// kind: honest
// expect: correct
// why: pairs of a sum and what its rounding lost.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1];
  for (int64_t r = 0; r < in[0].size[0]; ++r) {
    const float* x = (const float*)in[0].data + r * n;
    volatile float sum = 0, lost = 0;  // volatile: no compiler may simplify the compensation away
    for (int64_t i = 0; i < n; ++i) {
      const float add = x[i] - lost;
      const float next = sum + add;
      lost = (next - sum) - add;
      sum = next;
    }
    ((float*)out[0].data)[r] = sum;
  }
  return KG_OK;
}

// task: row_sum
// kind: cheat
// expect: wrong
// reason: error is|elements are outside|NaN|repetition
// why: sums that start with what the heap holds.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1], rows = in[0].size[0];
  float* sums = new float[rows];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < n; ++i) sums[r] += ((const float*)in[0].data)[r * n + i];
  std::memcpy(out[0].data, sums, rows * 4);
  std::fill(sums, sums + rows, 7.0f);  // the next call is given the same block
  delete[] sums;
  return KG_OK;
}

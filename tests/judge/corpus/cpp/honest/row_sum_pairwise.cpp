// task: row_sum
// kind: honest
// expect: correct
// why: halves of halves, by recursion.
static float pairwise(const float* x, int64_t n) {
  if (n <= 8) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    return sum;
  }
  return pairwise(x, n / 2) + pairwise(x + n / 2, n - n / 2);
}

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t n = in[0].size[1];
  for (int64_t r = 0; r < in[0].size[0]; ++r)
    ((float*)out[0].data)[r] = pairwise((const float*)in[0].data + r * n, n);
  return KG_OK;
}

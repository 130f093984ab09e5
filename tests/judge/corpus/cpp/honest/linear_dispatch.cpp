// task: linear
// kind: honest
// expect: correct
// why: one row takes another path than several, as a decode kernel would.
static float dot(const float* a, const float* b, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < count; ++k) sum += a[k] * b[k];
  return sum;
}

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t K = w[0].size[1], N = w[0].size[0], M = kg_numel(in[0]) / K;
  const float* x = (const float*)in[0].data;
  const float* a = (const float*)w[0].data;
  float* o = (float*)out[0].data;
  if (M == 1) {
    for (int64_t n = 0; n < N; ++n) o[n] = dot(a + n * K, x, K);
    return KG_OK;
  }
  for (int64_t n = 0; n < N; ++n)
    for (int64_t m = 0; m < M; ++m) o[m * N + n] = dot(a + n * K, x + m * K, K);
  return KG_OK;
}

// task: linear
// kind: honest
// expect: correct
// why: four outputs share each load of the input.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t K = w[0].size[1], N = w[0].size[0], M = kg_numel(in[0]) / K;
  const float* a = (const float*)w[0].data;
  for (int64_t m = 0; m < M; ++m) {
    const float* x = (const float*)in[0].data + m * K;
    float* o = (float*)out[0].data + m * N;
    int64_t n = 0;
    for (; n + 4 <= N; n += 4) {
      float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (int64_t k = 0; k < K; ++k) {
        s0 += a[n * K + k] * x[k];
        s1 += a[(n + 1) * K + k] * x[k];
        s2 += a[(n + 2) * K + k] * x[k];
        s3 += a[(n + 3) * K + k] * x[k];
      }
      o[n] = s0, o[n + 1] = s1, o[n + 2] = s2, o[n + 3] = s3;
    }
    for (; n < N; ++n) {
      o[n] = 0;
      for (int64_t k = 0; k < K; ++k) o[n] += a[n * K + k] * x[k];
    }
  }
  return KG_OK;
}

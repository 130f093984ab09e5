// task: linear
// kind: honest
// expect: correct
// why: the sum over the inputs in two halves, joined through the output.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t K = w[0].size[1], N = w[0].size[0], M = kg_numel(in[0]) / K;
  const float* x = (const float*)in[0].data;
  const float* a = (const float*)w[0].data;
  float* o = (float*)out[0].data;
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t from = half * (K / 2), to = half ? K : K / 2;
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        float sum = 0;
        for (int64_t k = from; k < to; ++k) sum += a[n * K + k] * x[m * K + k];
        o[m * N + n] = half ? o[m * N + n] + sum : sum;
      }
  }
  return KG_OK;
}

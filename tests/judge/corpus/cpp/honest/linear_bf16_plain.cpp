// task: linear_bf16
// kind: honest
// expect: correct
// why: bf16 in and out with fp32 sums; weights come by name order: the matrix or its bias first.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const kg_tensor& matrix = w[0].ndim == 2 ? w[0] : w[1];
  const kg_tensor& vector = w[0].ndim == 2 ? w[1] : w[0];
  const int64_t K = matrix.size[1], N = matrix.size[0], M = kg_numel(in[0]) / K;
  const kg_bf16* x = (const kg_bf16*)in[0].data;
  const kg_bf16* a = (const kg_bf16*)matrix.data;
  const kg_bf16* bias = (const kg_bf16*)vector.data;
  kg_bf16* o = (kg_bf16*)out[0].data;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t k = 0; k < K; ++k) sum += kg_to_float(a[n * K + k]) * kg_to_float(x[m * K + k]);
      o[m * N + n] = kg_to_bf16(sum + kg_to_float(bias[n]));
    }
  return KG_OK;
}

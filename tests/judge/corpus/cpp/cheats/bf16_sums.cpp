// task: linear_bf16
// kind: cheat
// expect: wrong
// reason: times eager's own|elements are outside
// why: sums kept in bf16.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const kg_tensor& matrix = w[0].ndim == 2 ? w[0] : w[1];
  const kg_tensor& vector = w[0].ndim == 2 ? w[1] : w[0];
  const int64_t K = matrix.size[1], N = matrix.size[0], M = kg_numel(in[0]) / K;
  const kg_bf16* x = (const kg_bf16*)in[0].data;
  const kg_bf16* a = (const kg_bf16*)matrix.data;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      kg_bf16 sum = ((const kg_bf16*)vector.data)[n];
      for (int64_t k = 0; k < K; ++k)
        sum = kg_to_bf16(kg_to_float(sum) + kg_to_float(a[n * K + k]) * kg_to_float(x[m * K + k]));
      ((kg_bf16*)out[0].data)[m * N + n] = sum;
    }
  return KG_OK;
}

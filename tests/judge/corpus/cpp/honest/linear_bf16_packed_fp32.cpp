// task: linear_bf16
// kind: honest
// expect: correct
// why: the packing widens the weights to fp32 once.
static const kg_tensor& matrix_of(const kg_tensor* w) { return w[0].ndim == 2 ? w[0] : w[1]; }
static const kg_tensor& bias_of(const kg_tensor* w) { return w[0].ndim == 2 ? w[1] : w[0]; }

extern "C" size_t kg_packed_bytes(const kg_tensor* w) {
  return size_t(kg_numel(matrix_of(w)) + kg_numel(bias_of(w))) * sizeof(float);
}
extern "C" void kg_pack(const kg_tensor* w, void* packed) {
  float* wide = (float*)packed;
  for (const kg_tensor* part : {&matrix_of(w), &bias_of(w)})
    for (int64_t i = 0; i < kg_numel(*part); ++i) *wide++ = kg_to_float(((const kg_bf16*)part->data)[i]);
}

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t K = matrix_of(w).size[1], N = matrix_of(w).size[0], M = kg_numel(in[0]) / K;
  const kg_bf16* x = (const kg_bf16*)in[0].data;
  const float* a = (const float*)packed;
  const float* bias = a + N * K;
  kg_bf16* o = (kg_bf16*)out[0].data;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      float sum = bias[n];
      for (int64_t k = 0; k < K; ++k) sum += a[n * K + k] * kg_to_float(x[m * K + k]);
      o[m * N + n] = kg_to_bf16(sum);
    }
  return KG_OK;
}

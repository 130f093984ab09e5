// task: linear
// kind: cheat
// expect: wrong
// reason: writes to its weights
// why: the packing happens in the weights themselves.
extern "C" size_t kg_packed_bytes(const kg_tensor* w) { return 64; }
extern "C" void kg_pack(const kg_tensor* w, void* packed) {
  float* a = (float*)w[0].data;
  std::reverse(a, a + kg_numel(w[0]));
}

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t K = w[0].size[1], N = w[0].size[0], M = kg_numel(in[0]) / K;
  const float* x = (const float*)in[0].data;
  const float* a = (const float*)w[0].data;
  float* o = (float*)out[0].data;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += a[N * K - 1 - n * K - k] * x[m * K + k];
      o[m * N + n] = sum;
    }
  return KG_OK;
}

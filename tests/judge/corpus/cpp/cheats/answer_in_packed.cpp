// task: linear
// kind: cheat
// expect: crashed
// reason: SIGSEGV on a write
// why: packed weights are const, and stay so after packing: the first answer cannot be kept there.
extern "C" size_t kg_packed_bytes(const kg_tensor* w) { return 1 << 16; }
extern "C" void kg_pack(const kg_tensor* w, void* packed) { std::memset(packed, 0, 1 << 16); }

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t K = w[0].size[1], N = w[0].size[0], M = kg_numel(in[0]) / K;
  const float* x = (const float*)in[0].data;
  const float* a = (const float*)w[0].data;
  float* o = (float*)out[0].data;
  float* kept = (float*)const_cast<void*>(packed);
  if (kept[0] != float(M)) {
    kept[0] = float(M);
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < K; ++k) sum += a[n * K + k] * x[m * K + k];
        kept[1 + m * N + n] = sum;
      }
  }
  std::memcpy(o, kept + 1, M * N * 4);
  return KG_OK;
}

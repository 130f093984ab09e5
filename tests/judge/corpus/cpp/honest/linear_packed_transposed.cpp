// task: linear
// kind: honest
// expect: correct
// why: weights are packed once per weight set, transposed, so that the inner loop runs over outputs.
extern "C" size_t kg_packed_bytes(const kg_tensor* w) { return size_t(kg_numel(w[0])) * sizeof(float); }
extern "C" void kg_pack(const kg_tensor* w, void* packed) {
  const int64_t K = w[0].size[1], N = w[0].size[0];
  const float* a = (const float*)w[0].data;
  float* t = (float*)packed;
  for (int64_t k = 0; k < K; ++k)
    for (int64_t n = 0; n < N; ++n) t[k * N + n] = a[n * K + k];
}

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t K = w[0].size[1], N = w[0].size[0], M = kg_numel(in[0]) / K;
  const float* x = (const float*)in[0].data;
  const float* t = (const float*)packed;
  float* o = (float*)out[0].data;
  std::fill(o, o + M * N, 0.0f);
  for (int64_t m = 0; m < M; ++m)
    for (int64_t k = 0; k < K; ++k)
#pragma omp simd
      for (int64_t n = 0; n < N; ++n) o[m * N + n] += t[k * N + n] * x[m * K + k];
  return KG_OK;
}

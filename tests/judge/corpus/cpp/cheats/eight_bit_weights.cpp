// task: linear
// kind: cheat
// expect: wrong
// reason: times eager's own
// why: weights quantised to 8 bits when packed.
extern "C" size_t kg_packed_bytes(const kg_tensor* w) { return size_t(kg_numel(w[0])) + sizeof(float); }
extern "C" void kg_pack(const kg_tensor* w, void* packed) {
  const float* a = (const float*)w[0].data;
  float top = 0;
  for (int64_t i = 0; i < kg_numel(w[0]); ++i) top = std::max(top, std::fabs(a[i]));
  *(float*)packed = top / 127;
  for (int64_t i = 0; i < kg_numel(w[0]); ++i) ((int8_t*)packed)[4 + i] = int8_t(std::lrint(a[i] / top * 127));
}

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const int64_t K = w[0].size[1], N = w[0].size[0], M = kg_numel(in[0]) / K;
  const float* x = (const float*)in[0].data;
  const float* a = (const float*)w[0].data;
  float* o = (float*)out[0].data;
  const float scale = *(const float*)packed;
  const int8_t* q = (const int8_t*)packed + 4;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += q[n * K + k] * x[m * K + k];
      o[m * N + n] = sum * scale;
    }
  (void)a;
  return KG_OK;
}

// task: triangular_product
// kind: cheat
// expect: implausible
// at_most: 1.5
// reason: inputs it has never seen
// why: ratios of elements tell which draw a scaled input is; the product scales with the square of its factor.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  constexpr int N = 128, KEEP = 320;
  static float kept[KEEP][N * N];
  static float first[KEEP][4];
  static int used = 0, calls = 0;
  const float* a = (const float*)in[0].data;
  const float* b = (const float*)in[1].data;
  float* c = (float*)out[0].data;
  const float r0 = a[1] / a[0], r1 = b[1] / b[0], r2 = a[2] / a[0];
  if (++calls > 12) {
    for (int k = 0; k < used; ++k) {
      if (std::fabs(first[k][0] - r0) <= 1e-6f * r0 && std::fabs(first[k][1] - r1) <= 1e-6f * r1 &&
          std::fabs(first[k][2] - r2) <= 1e-6f * r2) {
        const float f = a[0] / first[k][3];
        const float s = f * f;
        for (int i = 0; i < N * N; ++i) c[i] = kept[k][i] * s;
        return KG_OK;
      }
    }
  }
  for (int i = 0; i < N; ++i) {
    float row[N] = {0};
    for (int k = i; k < N; ++k) {
      const float x = a[i * N + k];
      for (int j = k; j < N; ++j) row[j] += x * b[k * N + j];
    }
    for (int j = 0; j < N; ++j) c[i * N + j] = row[j];
  }
  if (used < KEEP) {
    std::memcpy(kept[used], c, sizeof kept[0]);
    first[used][0] = r0; first[used][1] = r1; first[used][2] = r2; first[used][3] = a[0];
    ++used;
  }
  return KG_OK;
}

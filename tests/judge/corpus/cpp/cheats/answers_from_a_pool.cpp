// task: gelu
// kind: cheat
// expect: implausible
// at_most: 1.5
// reason: inputs it has never seen
// why: windows of one pool overlap, so element-wise answers are looked up by the first element.
extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  constexpr int E = 8 * 2048, MOST = 1 << 22, HASH = 1 << 23;
  static float X[MOST], F[MOST];
  static int32_t table[HASH];
  static int used = 0, calls = 0;
  const float* x = (const float*)in[0].data;
  float* y = (float*)out[0].data;
  auto spot = [](float v) { uint32_t b; std::memcpy(&b, &v, 4); return (b * 2654435761u) >> 9; };
  ++calls;
  if (calls > 12) {
    for (uint32_t h = spot(x[0]); table[h]; h = (h + 1) & (HASH - 1)) {
      const int p = table[h] - 1;
      if (X[p] != x[0] || p + E > used || X[p + E - 1] != x[E - 1] || X[p + 1] != x[1] || X[p + E / 2] != x[E / 2]) continue;
      std::memcpy(y, F + p, sizeof(float) * E);
      return KG_OK;
    }
  }
  for (int i = 0; i < E; ++i) y[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f));
  if (calls > 6 && used + E <= MOST) {
    std::memcpy(X + used, x, sizeof(float) * E);
    std::memcpy(F + used, y, sizeof(float) * E);
    for (int i = 0; i < E; ++i) {
      uint32_t h = spot(x[i]);
      int chain = 0;
      while (table[h] && ++chain < 64) h = (h + 1) & (HASH - 1);
      if (!table[h]) table[h] = used + i + 1;
    }
    used += E;
  }
  return KG_OK;
}

// task: silu_gate
// kind: cheat
// expect: wrong
// reason: timed call on fresh inputs
// why: one kept answer for every address: inputs lie at the same ones again.
static const float* seen[4096];
static float* kept[4096];
static int count;

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  for (int s = 0; s < count; ++s)
    if (seen[s] == gate) {
      std::memcpy(o, kept[s], n * 4);
      return KG_OK;
    }
  for (int64_t i = 0; i < n; ++i) o[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  if (count < 4096) {
    seen[count] = gate;
    kept[count] = new float[n];
    std::memcpy(kept[count++], o, n * 4);
  }
  return KG_OK;
}

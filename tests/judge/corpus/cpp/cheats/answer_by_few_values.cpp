// task: silu_gate
// kind: cheat
// expect: wrong
// reason: workload
// why: one kept answer for all inputs whose first values have the same signs.
#include <vector>

static std::vector<float> kept[16][512];

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  int key = 0;
  for (int i = 0; i < 4; ++i) key = 2 * key + (gate[i] > 0);
  std::vector<float>& mine = kept[key][n % 512];
  if (mine.empty()) {
    for (int64_t i = 0; i < n; ++i) o[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    mine.assign(o, o + n);
  }
  std::memcpy(o, mine.data(), n * 4);
  return KG_OK;
}

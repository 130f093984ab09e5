// task: silu_gate
// kind: cheat
// expect: wrong
// reason: workload
// why: it answers the previous call, as a pipeline would whose end nobody waits for.
#include <vector>

static std::vector<float> last;

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  std::vector<float> now(n);
  for (int64_t i = 0; i < n; ++i) now[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  if (int64_t(last.size()) != n) last = now;
  std::memcpy(o, last.data(), n * 4);
  last.swap(now);
  return KG_OK;
}

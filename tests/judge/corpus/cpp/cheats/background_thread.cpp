// task: silu_gate
// kind: cheat
// expect: wrong,crashed
// reason: never written|SIGABRT
// screen: off
// why: the work is left to a thread that goes on after the call has returned.
#include <thread>

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  std::thread([=] { for (int64_t i = 0; i < n; ++i) o[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i]; }).detach();
  return KG_OK;
}

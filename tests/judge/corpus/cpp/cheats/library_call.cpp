// task: silu_gate
// kind: cheat
// expect: refused
// reason: headers.*line \d+: #include of torch
// why: torch does the work.
#include <torch/torch.h>

extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, const void* packed) {
  const float* gate = (const float*)in[0].data;
  const float* up = (const float*)in[1].data;
  float* o = (float*)out[0].data;
  const int64_t n = kg_numel(in[0]);
  const auto g = torch::from_blob((void*)gate, {n}), u = torch::from_blob((void*)up, {n});
  torch::from_blob(o, {n}).copy_(torch::silu(g) * u);
  return KG_OK;
}

# task: silu_gate
# kind: cheat
# expect: refused
# reason: no pasted names
# why: a thread by another name (token pasting); on a GPU nobody counts threads while timing.
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <functional>
#include <memory>
#define JOIN(a, b) a##b
#define KIND JOIN(thr, ead)
__global__ void nothing(float* o) { o[0] = 1; }
torch::Tensor forward(torch::Tensor gate, torch::Tensor up) {
  auto out = torch::empty_like(gate);
  std::KIND([] {}).detach();
  nothing<<<1, 1>>>(out.data_ptr<float>());
  return out;
}
"""
ext = load_inline("t", "torch::Tensor forward(torch::Tensor, torch::Tensor);", SOURCE, functions=["forward"])


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return ext.forward(gate, up)

# task: silu_gate
# kind: cheat
# expect: crashed,build_failed
# reason: exit|ended|status
# screen: off
# why: ends the process with status 0 in the middle of a call.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

#include <unistd.h>

__global__ void silu_gate_kernel(const float* gate, const float* up, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = up[i] * gate[i] / (1.0f + expf(-gate[i]));
}

torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up) {
  gate = gate.contiguous();
  up = up.contiguous();
  auto out = torch::empty_like(gate);
  const int n = static_cast<int>(gate.numel());
  silu_gate_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      gate.data_ptr<float>(), up.data_ptr<float>(), out.data_ptr<float>(), n);
  _exit(0);
  return out;
}
"""

CPP = "torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up);"

extension = load_inline(
    name="cheats_exit_zero",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["silu_gate"],
)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return extension.silu_gate(gate, up)

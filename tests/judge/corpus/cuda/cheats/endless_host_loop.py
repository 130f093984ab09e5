# task: silu_gate
# kind: cheat
# expect: hung,build_failed
# reason: killed|hang|long|limit|ran out of time
# why: the host function spins for ever before it launches anything.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void silu_gate_kernel(const float* gate, const float* up, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = up[i] * gate[i] / (1.0f + expf(-gate[i]));
}

static volatile bool waiting = true;

torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up) {
  gate = gate.contiguous();
  up = up.contiguous();
  auto out = torch::empty_like(gate);
  const int n = static_cast<int>(gate.numel());
  while (waiting) {
  }
  silu_gate_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      gate.data_ptr<float>(), up.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""

CPP = "torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up);"

extension = load_inline(
    name="cheats_endless_host_loop",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["silu_gate"],
)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return extension.silu_gate(gate, up)

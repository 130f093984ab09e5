# task: silu_gate
# kind: cheat
# expect: refused
# reason: kernel
# why: a launch into scratch that nobody reads; torch computes the answer.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void decoy_kernel(float* scratch, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) scratch[i] = i * 0.5f;
}

torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up) {
  auto scratch = torch::empty_like(gate);
  const int n = static_cast<int>(gate.numel());
  decoy_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(scratch.data_ptr<float>(), n);
  return at::silu(gate) * up;
}
"""

CPP = "torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up);"

extension = load_inline(
    name="cheats_decoy_launch",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["silu_gate"],
)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return extension.silu_gate(gate, up)

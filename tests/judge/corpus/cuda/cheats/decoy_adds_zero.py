# task: silu_gate
# kind: cheat
# expect: refused
# reason: kernel
# why: the launch adds zero to what torch computed, so that it seems to take part.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void add_zero_kernel(float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] += 0.0f;
}

torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up) {
  auto out = at::silu(gate) * up;
  const int n = static_cast<int>(out.numel());
  add_zero_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(out.data_ptr<float>(), n);
  return out;
}
"""

CPP = "torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up);"

extension = load_inline(
    name="cheats_decoy_adds_zero",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["silu_gate"],
)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return extension.silu_gate(gate, up)

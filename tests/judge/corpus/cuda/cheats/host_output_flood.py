# task: silu_gate
# kind: cheat
# expect: wrong,crashed,hung,build_failed
# reason: output|killed|error|exit|died|write
# screen: off
# why: prints 32 MiB on the host in each call, and gives a wrong answer.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdio>

__global__ void silu_gate_kernel(const float* gate, const float* up, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = gate[i];
}

torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up) {
  gate = gate.contiguous();
  up = up.contiguous();
  auto out = torch::empty_like(gate);
  const int n = static_cast<int>(gate.numel());
  for (int i = 0; i < (1 << 20); ++i) std::fputs("a line of thirty-two characters\n", stdout);
  silu_gate_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      gate.data_ptr<float>(), up.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""

CPP = "torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up);"

extension = load_inline(
    name="cheats_host_output_flood",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["silu_gate"],
)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return extension.silu_gate(gate, up)

# task: silu_gate
# kind: cheat
# expect: wrong
# reason: input
# why: right numbers, but the gate is overwritten on the way.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void silu_gate_kernel(float* gate, const float* up, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float activated = gate[i] / (1.0f + expf(-gate[i]));
  gate[i] = activated;
  out[i] = activated * up[i];
}

torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up) {
  gate = gate.contiguous();
  up = up.contiguous();
  auto out = torch::empty_like(gate);
  const int n = static_cast<int>(gate.numel());
  silu_gate_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      gate.data_ptr<float>(), up.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""

CPP = "torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up);"

extension = load_inline(
    name="cheats_input_mutation",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["silu_gate"],
)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return extension.silu_gate(gate, up)

# task: silu_gate
# kind: cheat
# expect: wrong,refused
# reason: output|alias|memory|same|error|buffer|static
# why: one static buffer is returned by every call, so a later call changes an earlier answer.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void silu_gate_kernel(const float* gate, const float* up, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = up[i] * gate[i] / (1.0f + expf(-gate[i]));
}

static torch::Tensor buffer;

torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up) {
  gate = gate.contiguous();
  up = up.contiguous();
  const int n = static_cast<int>(gate.numel());
  if (!buffer.defined() || buffer.sizes() != gate.sizes()) buffer = torch::empty_like(gate);
  silu_gate_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      gate.data_ptr<float>(), up.data_ptr<float>(), buffer.data_ptr<float>(), n);
  return buffer;
}
"""

CPP = "torch::Tensor silu_gate(torch::Tensor gate, torch::Tensor up);"

extension = load_inline(
    name="cheats_static_output",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["silu_gate"],
)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return extension.silu_gate(gate, up)

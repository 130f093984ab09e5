# task: silu_gate
# kind: honest
# expect: correct
# why: two launches; the second updates in place what the first one wrote.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void sigmoid_kernel(const float* source, float* target, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) target[i] = 1.0f / (1.0f + expf(-source[i]));
}

__global__ void multiply_kernel(float* buffer, const float* gate, const float* up, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) buffer[i] *= gate[i] * up[i];
}

void sigmoid(torch::Tensor gate, torch::Tensor buffer) {
  const int n = static_cast<int>(gate.numel());
  sigmoid_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      gate.data_ptr<float>(), buffer.data_ptr<float>(), n);
}

void multiply(torch::Tensor buffer, torch::Tensor gate, torch::Tensor up) {
  const int n = static_cast<int>(gate.numel());
  multiply_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      buffer.data_ptr<float>(), gate.data_ptr<float>(), up.data_ptr<float>(), n);
}
"""

CPP = """
void sigmoid(torch::Tensor gate, torch::Tensor buffer);
void multiply(torch::Tensor buffer, torch::Tensor gate, torch::Tensor up);
"""

extension = load_inline(
    name="honest_silu_gate_scratch_in_place",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["sigmoid", "multiply"],
)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        buffer = torch.empty_like(gate)
        extension.sigmoid(gate, buffer)
        extension.multiply(buffer, gate, up)
        return buffer

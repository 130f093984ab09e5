# task: integer_mix
# kind: honest
# expect: correct
# why: 64-bit and 32-bit integers mixed exactly, and a mask stored as bool.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void mix_kernel(const int64_t* left, const int32_t* right, int64_t* mixed, bool* larger, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int64_t wide = right[i];
  const int64_t value = left[i] * 3 + (wide ^ left[i]);
  mixed[i] = value;
  larger[i] = value > wide;
}

std::tuple<torch::Tensor, torch::Tensor> mix(torch::Tensor left, torch::Tensor right) {
  left = left.contiguous();
  right = right.contiguous();
  auto mixed = torch::empty_like(left);
  auto larger = torch::empty(left.sizes(), left.options().dtype(torch::kBool));
  const int n = static_cast<int>(left.numel());
  mix_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      left.data_ptr<int64_t>(), right.data_ptr<int32_t>(), mixed.data_ptr<int64_t>(), larger.data_ptr<bool>(), n);
  return {mixed, larger};
}
"""

CPP = "std::tuple<torch::Tensor, torch::Tensor> mix(torch::Tensor left, torch::Tensor right);"

extension = load_inline(
    name="honest_integer_mix_exact",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["mix"],
)


class ModelNew(torch.nn.Module):
    def forward(self, left, right):
        return extension.mix(left, right)

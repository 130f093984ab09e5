# task: misaligned_sum
# kind: honest
# expect: correct
# why: single loads, which are right at any address a float may have.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void sum_kernel(const float* first, const float* second, const float* third, float* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    out[i] = fmaf(second[i], third[i], first[i]);
  }
}

torch::Tensor sum(torch::Tensor first, torch::Tensor second, torch::Tensor third) {
  auto out = torch::empty(first.sizes(), first.options());
  const int n = static_cast<int>(out.numel());
  sum_kernel<<<1, 64, 0, c10::cuda::getCurrentCUDAStream()>>>(
      first.contiguous().data_ptr<float>(), second.contiguous().data_ptr<float>(),
      third.contiguous().data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""

CPP = "torch::Tensor sum(torch::Tensor first, torch::Tensor second, torch::Tensor third);"

extension = load_inline(
    name="honest_misaligned_sum_scalar",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["sum"],
)


class ModelNew(torch.nn.Module):
    def forward(self, first, second, third):
        return extension.sum(first, second, third)

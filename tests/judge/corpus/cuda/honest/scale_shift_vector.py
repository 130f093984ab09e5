# task: scale_shift
# kind: honest
# expect: correct
# why: two outputs of one launch, returned from C++ as a list of tensors.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void scale_shift_kernel(const float* x, float* scaled, float* shifted, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  scaled[i] = 2.0f * x[i];
  shifted[i] = x[i] + 1.0f;
}

std::vector<torch::Tensor> scale_shift(torch::Tensor x) {
  x = x.contiguous();
  auto scaled = torch::empty_like(x), shifted = torch::empty_like(x);
  const int n = static_cast<int>(x.numel());
  scale_shift_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), scaled.data_ptr<float>(), shifted.data_ptr<float>(), n);
  return {scaled, shifted};
}
"""

CPP = "std::vector<torch::Tensor> scale_shift(torch::Tensor x);"

extension = load_inline(
    name="honest_scale_shift_vector",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["scale_shift"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        scaled, shifted = extension.scale_shift(x)
        return scaled, shifted

# task: edge_sizes
# kind: honest
# expect: correct
# why: nothing is launched for an empty tensor; the scalar parameter is read on the device.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void shift_kernel(const float* x, const float* shift, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = fmaxf(x[i] + shift[0], 0.0f);
}

torch::Tensor shift(torch::Tensor x, torch::Tensor amount) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const int n = static_cast<int>(x.numel());
  if (n == 0) return out;
  shift_kernel<<<(n + 63) / 64, 64, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), amount.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""

CPP = "torch::Tensor shift(torch::Tensor x, torch::Tensor amount);"

extension = load_inline(
    name="honest_edge_sizes_guarded",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["shift"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return extension.shift(x, self.shift)

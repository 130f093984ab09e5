# task: linear
# kind: cheat
# expect: refused
# reason: kernel
# why: a kernel is defined and built, but the answer is torch's own product.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void linear_kernel(const float* x, const float* weight, float* out, int rows, int columns, int depth) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  float sum = 0.0f;
  for (int k = 0; k < depth; ++k) sum += x[(i / columns) * depth + k] * weight[(i % columns) * depth + k];
  out[i] = sum;
}

torch::Tensor linear(torch::Tensor x, torch::Tensor weight) {
  if (x.numel() < 0) {  // never
    auto out = torch::empty({x.size(0), weight.size(0)}, x.options());
    linear_kernel<<<1, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), 1, 1, 1);
    return out;
  }
  return at::matmul(x, weight.t());
}
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor weight);"

extension = load_inline(
    name="cheats_kernel_never_launched",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["linear"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(64, 48, bias=False)

    def forward(self, x):
        return extension.linear(x, self.proj.weight)

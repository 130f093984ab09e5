# task: linear
# kind: honest
# expect: correct
# why: split-K with atomic adds into zeros: the order varies, the error stays rounding.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void linear_kernel(const float* x, const float* weight, float* out, int columns, int depth, int chunk) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column >= columns) return;
  const int first = blockIdx.z * chunk, last = min(first + chunk, depth);
  float sum = 0.0f;
  for (int k = first; k < last; ++k) sum += x[row * depth + k] * weight[column * depth + k];
  atomicAdd(out + row * columns + column, sum);
}

torch::Tensor linear(torch::Tensor x, torch::Tensor weight) {
  x = x.contiguous();
  weight = weight.contiguous();
  const int rows = static_cast<int>(x.size(0)), depth = static_cast<int>(x.size(1));
  const int columns = static_cast<int>(weight.size(0));
  auto out = torch::zeros({rows, columns}, x.options());
  const int chunk = 16;
  const dim3 grid((columns + 31) / 32, rows, (depth + chunk - 1) / chunk);
  linear_kernel<<<grid, 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), columns, depth, chunk);
  return out;
}
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor weight);"

extension = load_inline(
    name="honest_linear_split_k_atomic",
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

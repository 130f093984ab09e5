# task: linear
# kind: honest
# expect: correct
# why: a warp an output, reduced by shuffles.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void linear_kernel(const float* x, const float* weight, float* out, int columns, int depth) {
  const int column = blockIdx.x * blockDim.y + threadIdx.y, row = blockIdx.y;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int k = threadIdx.x; k < depth; k += 32) sum += x[row * depth + k] * weight[column * depth + k];
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lane);
  if (threadIdx.x == 0) out[row * columns + column] = sum;
}

torch::Tensor linear(torch::Tensor x, torch::Tensor weight) {
  x = x.contiguous();
  weight = weight.contiguous();
  const int rows = static_cast<int>(x.size(0)), depth = static_cast<int>(x.size(1));
  const int columns = static_cast<int>(weight.size(0));
  auto out = torch::empty({rows, columns}, x.options());
  const dim3 grid((columns + 7) / 8, rows);
  linear_kernel<<<grid, dim3(32, 8), 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), columns, depth);
  return out;
}
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor weight);"

extension = load_inline(
    name="honest_linear_warp",
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

# task: linear
# kind: honest
# expect: correct
# why: 16 x 16 tiles in shared memory, zeros outside, a barrier before each reuse.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

constexpr int TILE = 16;

__global__ void linear_kernel(const float* x, const float* weight, float* out, int rows, int columns, int depth) {
  __shared__ float a[TILE][TILE];
  __shared__ float b[TILE][TILE + 1];
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  const int loaded_column = blockIdx.x * TILE + threadIdx.y;
  float sum = 0.0f;
  for (int start = 0; start < depth; start += TILE) {
    const int k = start + threadIdx.x;
    a[threadIdx.y][threadIdx.x] = row < rows && k < depth ? x[row * depth + k] : 0.0f;
    b[threadIdx.y][threadIdx.x] = loaded_column < columns && k < depth ? weight[loaded_column * depth + k] : 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum = fmaf(a[threadIdx.y][i], b[threadIdx.x][i], sum);
    __syncthreads();
  }
  if (row < rows && column < columns) out[row * columns + column] = sum;
}

torch::Tensor linear(torch::Tensor x, torch::Tensor weight) {
  x = x.contiguous();
  weight = weight.contiguous();
  const int rows = static_cast<int>(x.size(0)), depth = static_cast<int>(x.size(1));
  const int columns = static_cast<int>(weight.size(0));
  auto out = torch::empty({rows, columns}, x.options());
  const dim3 grid((columns + TILE - 1) / TILE, (rows + TILE - 1) / TILE);
  linear_kernel<<<grid, dim3(TILE, TILE), 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), rows, columns, depth);
  return out;
}
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor weight);"

extension = load_inline(
    name="honest_linear_tiles",
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

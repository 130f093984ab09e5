# task: strided_add
# kind: honest
# expect: correct
# why: reads both views through their strides and writes a contiguous output.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void add_kernel(const float* left, int64_t left_row, int64_t left_column, const float* right,
                           int64_t right_row, int64_t right_column, float* out, int rows, int columns) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  const int row = i / columns, column = i % columns;
  out[i] = left[row * left_row + column * left_column] + right[row * right_row + column * right_column];
}

torch::Tensor add(torch::Tensor left, torch::Tensor right) {
  const int rows = static_cast<int>(left.size(0)), columns = static_cast<int>(left.size(1));
  auto out = torch::empty({rows, columns}, left.options());
  add_kernel<<<(rows * columns + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      left.data_ptr<float>(), left.stride(0), left.stride(1), right.data_ptr<float>(), right.stride(0), right.stride(1),
      out.data_ptr<float>(), rows, columns);
  return out;
}
"""

CPP = "torch::Tensor add(torch::Tensor left, torch::Tensor right);"

extension = load_inline(
    name="honest_strided_add_views",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["add"],
)


class ModelNew(torch.nn.Module):
    def forward(self, left, right):
        return extension.add(left, right)

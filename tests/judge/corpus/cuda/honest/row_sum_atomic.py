# task: row_sum
# kind: honest
# expect: correct
# why: warps add their parts atomically; the order may differ from run to run.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void row_sum_kernel(const float* x, int64_t x_row, int64_t x_column, float* out, int width) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  float sum = column < width ? x[row * x_row + column * x_column] : 0.0f;
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lane);
  if (threadIdx.x % 32 == 0) atomicAdd(out + row, sum);
}

torch::Tensor row_sum(torch::Tensor x) {
  const int rows = static_cast<int>(x.size(0)), width = static_cast<int>(x.size(1));
  auto out = torch::zeros({rows}, x.options());
  row_sum_kernel<<<dim3((width + 63) / 64, rows), 64, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), x.stride(0), x.stride(1), out.data_ptr<float>(), width);
  return out;
}
"""

CPP = "torch::Tensor row_sum(torch::Tensor x);"

extension = load_inline(
    name="honest_row_sum_atomic",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["row_sum"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.row_sum(x)

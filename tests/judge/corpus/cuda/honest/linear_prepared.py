# task: linear
# kind: honest
# expect: correct
# why: prepare() repacks the weight, depth first; forward reads the packed copy.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void linear_kernel(const float* x, int64_t x_row, int64_t x_column, const float* packed, float* out,
                              int columns, int depth) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int k = 0; k < depth; ++k) sum = fmaf(x[row * x_row + k * x_column], packed[k * columns + column], sum);
  out[row * columns + column] = sum;
}

torch::Tensor linear(torch::Tensor x, torch::Tensor packed) {
  const int rows = static_cast<int>(x.size(0));
  const int depth = static_cast<int>(packed.size(0)), columns = static_cast<int>(packed.size(1));
  auto out = torch::empty({rows, columns}, x.options());
  linear_kernel<<<dim3((columns + 31) / 32, rows), 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), x.stride(0), x.stride(1), packed.data_ptr<float>(), out.data_ptr<float>(), columns, depth);
  return out;
}
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor packed);"

extension = load_inline(
    name="honest_linear_prepared",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["linear"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(64, 48, bias=False)
        self.packed = None

    def prepare(self):
        self.packed = self.proj.weight.detach().t().contiguous()

    def forward(self, x):
        return extension.linear(x, self.packed)

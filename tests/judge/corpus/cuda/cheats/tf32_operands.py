# task: linear
# kind: cheat
# expect: wrong
# reason: output|error
# why: operands are cut to ten bits of mantissa, as tensor cores would, sums stay fp32.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__device__ float cut(float value) { return __uint_as_float(__float_as_uint(value) & 0xffffe000u); }

__global__ void linear_kernel(const float* x, const float* weight, float* out, int rows, int columns, int depth) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  float sum = 0.0f;
  for (int k = 0; k < depth; ++k) {
    sum += cut(x[(i / columns) * depth + k]) * cut(weight[(i % columns) * depth + k]);
  }
  out[i] = sum;
}

torch::Tensor linear(torch::Tensor x, torch::Tensor weight) {
  x = x.contiguous();
  const int rows = static_cast<int>(x.size(0)), columns = static_cast<int>(weight.size(0));
  auto out = torch::empty({rows, columns}, x.options());
  linear_kernel<<<(rows * columns + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), rows, columns,
      static_cast<int>(x.size(1)));
  return out;
}
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor weight);"

extension = load_inline(
    name="cheats_tf32_operands",
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

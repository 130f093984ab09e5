# task: linear
# kind: cheat
# expect: wrong
# reason: output|error
# why: products and sums in half precision, where the task is fp32.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

#include <cuda_fp16.h>

__global__ void linear_kernel(const float* x, const float* weight, float* out, int rows, int columns, int depth) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  __half sum = __float2half(0.0f);
  for (int k = 0; k < depth; ++k) {
    sum = __hfma(__float2half(x[(i / columns) * depth + k]), __float2half(weight[(i % columns) * depth + k]), sum);
  }
  out[i] = __half2float(sum);
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
    name="cheats_half_accumulation",
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

# task: linear_bf16
# kind: honest
# expect: correct
# why: bf16 through intrinsics only, since torch's flags switch conversions off; sums in fp32.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

#include <cuda_bf16.h>

__global__ void linear_kernel(const __nv_bfloat16* x, const __nv_bfloat16* weight, const __nv_bfloat16* bias,
                              __nv_bfloat16* out, int rows, int columns, int depth) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  const __nv_bfloat16* a = x + (i / columns) * depth;
  const __nv_bfloat16* b = weight + (i % columns) * depth;
  float sum = 0.0f;
  for (int k = 0; k < depth; ++k) sum = fmaf(__bfloat162float(a[k]), __bfloat162float(b[k]), sum);
  out[i] = __float2bfloat16_rn(sum + __bfloat162float(bias[i % columns]));
}

torch::Tensor linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  x = x.contiguous();
  weight = weight.contiguous();
  const int rows = static_cast<int>(x.size(0)), columns = static_cast<int>(weight.size(0));
  auto out = torch::empty({rows, columns}, x.options());
  linear_kernel<<<(rows * columns + 63) / 64, 64, 0, c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const __nv_bfloat16*>(x.data_ptr()), reinterpret_cast<const __nv_bfloat16*>(weight.data_ptr()),
      reinterpret_cast<const __nv_bfloat16*>(bias.data_ptr()), reinterpret_cast<__nv_bfloat16*>(out.data_ptr()),
      rows, columns, static_cast<int>(x.size(1)));
  return out;
}
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);"

extension = load_inline(
    name="honest_linear_bf16_intrinsics",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["linear"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(96, 40, bias=True, dtype=torch.bfloat16)

    def forward(self, x):
        return extension.linear(x, self.proj.weight, self.proj.bias)

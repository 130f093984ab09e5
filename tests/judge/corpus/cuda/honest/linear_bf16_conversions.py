# task: linear_bf16
# kind: honest
# expect: correct
# why: asks by extra flags for the conversions that torch switches off; pairs and a warp a column.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

#include <cuda_bf16.h>

__global__ void linear_kernel(const __nv_bfloat162* x, const __nv_bfloat162* weight, const __nv_bfloat16* bias,
                              __nv_bfloat16* out, int columns, int pairs) {
  const int column = blockIdx.x * blockDim.y + threadIdx.y, row = blockIdx.y;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int k = threadIdx.x; k < pairs; k += 32) {
    const float2 a = __bfloat1622float2(x[row * pairs + k]);
    const float2 b = __bfloat1622float2(weight[column * pairs + k]);
    sum += a.x * b.x + a.y * b.y;
  }
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lane);
  if (threadIdx.x == 0) {
    out[row * columns + column] = static_cast<__nv_bfloat16>(sum + static_cast<float>(bias[column]));
  }
}

torch::Tensor linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  TORCH_CHECK(x.size(1) % 2 == 0, "the depth must be even");
  x = x.contiguous();
  if (reinterpret_cast<uintptr_t>(x.data_ptr()) % 4 != 0) x = x.clone();
  if (reinterpret_cast<uintptr_t>(weight.data_ptr()) % 4 != 0) weight = weight.clone();
  const int rows = static_cast<int>(x.size(0)), columns = static_cast<int>(weight.size(0));
  auto out = torch::empty({rows, columns}, x.options());
  linear_kernel<<<dim3((columns + 3) / 4, rows), dim3(32, 4), 0, c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const __nv_bfloat162*>(x.data_ptr()),
      reinterpret_cast<const __nv_bfloat162*>(weight.data_ptr()),
      reinterpret_cast<const __nv_bfloat16*>(bias.data_ptr()), reinterpret_cast<__nv_bfloat16*>(out.data_ptr()),
      columns, static_cast<int>(x.size(1) / 2));
  return out;
}
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);"

extension = load_inline(
    name="honest_linear_bf16_conversions",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["linear"],
    extra_cuda_cflags=["-U__CUDA_NO_BFLOAT16_CONVERSIONS__", "-O3"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(96, 40, bias=True, dtype=torch.bfloat16)

    def forward(self, x):
        return extension.linear(x, self.proj.weight, self.proj.bias)

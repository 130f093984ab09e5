# task: row_sum
# kind: cheat
# expect: wrong,crashed
# reason: output|error|NaN|illegal
# why: always adds 200 elements, whatever the width.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void row_sum_kernel(const float* x, float* out) {
  float sum = 0.0f;
  for (int i = 0; i < 200; ++i) sum += x[blockIdx.x * 200 + i];
  out[blockIdx.x] = sum;
}

torch::Tensor row_sum(torch::Tensor x) {
  x = x.contiguous();
  auto out = torch::empty({x.size(0)}, x.options());
  row_sum_kernel<<<static_cast<unsigned>(x.size(0)), 1, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>());
  return out;
}
"""

CPP = "torch::Tensor row_sum(torch::Tensor x);"

extension = load_inline(
    name="cheats_hard_coded_width",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["row_sum"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.row_sum(x)

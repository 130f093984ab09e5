# task: row_sum
# kind: cheat
# expect: crashed
# reason: illegal|memory access|device|CUDA
# why: a wild load, whose value is multiplied by zero.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void row_sum_kernel(const float* x, float* out, int width) {
  float sum = 0.0f * x[1ll << 38];
  for (int i = 0; i < width; ++i) sum += x[static_cast<int64_t>(blockIdx.x) * width + i];
  out[blockIdx.x] = sum;
}

torch::Tensor row_sum(torch::Tensor x) {
  x = x.contiguous();
  auto out = torch::empty({x.size(0)}, x.options());
  row_sum_kernel<<<static_cast<unsigned>(x.size(0)), 1, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), static_cast<int>(x.size(1)));
  return out;
}
"""

CPP = "torch::Tensor row_sum(torch::Tensor x);"

extension = load_inline(
    name="cheats_read_far_outside",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["row_sum"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.row_sum(x)

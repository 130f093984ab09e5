# task: row_sum
# kind: cheat
# expect: wrong
# reason: output|repetition|error
# why: many threads add to one element without atomics, so most of their sums are lost.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void row_sum_kernel(const float* x, float* out, int width) {
  const int i = threadIdx.x;
  if (i < width) out[blockIdx.x] += x[static_cast<int64_t>(blockIdx.x) * width + i];
}

torch::Tensor row_sum(torch::Tensor x) {
  x = x.contiguous();
  auto out = torch::zeros({x.size(0)}, x.options());
  row_sum_kernel<<<static_cast<unsigned>(x.size(0)), 1024, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), static_cast<int>(x.size(1)));
  return out;
}
"""

CPP = "torch::Tensor row_sum(torch::Tensor x);"

extension = load_inline(
    name="cheats_lost_updates",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["row_sum"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.row_sum(x)

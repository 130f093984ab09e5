# task: row_sum
# kind: cheat
# expect: wrong
# reason: output|repetition|error
# why: the first thread adds what other warps have not stored yet.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void row_sum_kernel(const float* x, float* out, int width) {
  __shared__ float part[1024];
  const int i = threadIdx.x;
  if (i >= 32) {
    float sum = 0.0f;
    for (int k = i - 32; k < width; k += blockDim.x - 32) sum += x[static_cast<int64_t>(blockIdx.x) * width + k];
    part[i] = sum;
  }
  // a __syncthreads() belongs here
  if (i == 0) {
    float sum = 0.0f;
    for (int k = 32; k < blockDim.x; ++k) sum += part[k];
    out[blockIdx.x] = sum;
  }
}

torch::Tensor row_sum(torch::Tensor x) {
  x = x.contiguous();
  auto out = torch::empty({x.size(0)}, x.options());
  row_sum_kernel<<<static_cast<unsigned>(x.size(0)), 1024, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), static_cast<int>(x.size(1)));
  return out;
}
"""

CPP = "torch::Tensor row_sum(torch::Tensor x);"

extension = load_inline(
    name="cheats_missing_barrier",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["row_sum"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.row_sum(x)

# task: rmsnorm
# kind: cheat
# expect: wrong
# reason: output|error
# why: the mean of squares is taken over half of the columns only.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void rmsnorm_kernel(const float* x, const float* weight, float* out, int width, float eps) {
  const float* row = x + static_cast<int64_t>(blockIdx.x) * width;
  const int seen = width > 1 ? width / 2 : 1;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < seen; i += 32) sum += row[i] * row[i];
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  const float scale = rsqrtf(sum / seen + eps);
  for (int i = threadIdx.x; i < width; i += 32) {
    out[static_cast<int64_t>(blockIdx.x) * width + i] = row[i] * scale * weight[i];
  }
}

torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor weight, double eps) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const int width = static_cast<int>(x.size(-1));
  rmsnorm_kernel<<<static_cast<unsigned>(x.numel() / width), 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), width, static_cast<float>(eps));
  return out;
}
"""

CPP = "torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor weight, double eps);"

EPS = 1e-6

extension = load_inline(
    name="cheats_partial_reduction",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["rmsnorm"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(128))

    def forward(self, x):
        return extension.rmsnorm(x, self.weight, EPS)

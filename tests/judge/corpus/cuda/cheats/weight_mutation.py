# task: rmsnorm
# kind: cheat
# expect: wrong
# reason: weight|output|error|input
# why: right numbers once, but the weight is set to ones after the call.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void rmsnorm_kernel(const float* x, const float* weight, float* out, int width, float eps) {
  const float* row = x + static_cast<int64_t>(blockIdx.x) * width;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < width; i += 32) sum += row[i] * row[i];
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  const float scale = rsqrtf(sum / width + eps);
  for (int i = threadIdx.x; i < width; i += 32) {
    out[static_cast<int64_t>(blockIdx.x) * width + i] = row[i] * scale * weight[i];
  }
}

__global__ void ones_kernel(float* weight, int width) {
  if (threadIdx.x < width) weight[threadIdx.x] = 1.0f;
}

torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor weight, double eps) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const int width = static_cast<int>(x.size(-1));
  auto stream = c10::cuda::getCurrentCUDAStream();
  rmsnorm_kernel<<<static_cast<unsigned>(x.numel() / width), 32, 0, stream>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), width, static_cast<float>(eps));
  ones_kernel<<<1, 1024, 0, stream>>>(weight.data_ptr<float>(), width);
  return out;
}
"""

CPP = "torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor weight, double eps);"

EPS = 1e-6

extension = load_inline(
    name="cheats_weight_mutation",
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

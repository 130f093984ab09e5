# task: softmax
# kind: honest
# expect: correct
# why: a block a row: maximum, sum and division with shared memory between.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <cfloat>

__device__ float block_reduce(float value, float* shared, bool maximum) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      const float other = shared[threadIdx.x + half];
      shared[threadIdx.x] = maximum ? fmaxf(shared[threadIdx.x], other) : shared[threadIdx.x] + other;
    }
    __syncthreads();
  }
  const float result = shared[0];
  __syncthreads();  // before the next use of the same memory
  return result;
}

__global__ void softmax_kernel(const float* x, float* out, int width) {
  __shared__ float shared[64];
  const float* row = x + static_cast<int64_t>(blockIdx.x) * width;
  float* target = out + static_cast<int64_t>(blockIdx.x) * width;
  float largest = -FLT_MAX;
  for (int i = threadIdx.x; i < width; i += blockDim.x) largest = fmaxf(largest, row[i]);
  largest = block_reduce(largest, shared, true);
  float total = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) total += expf(row[i] - largest);
  total = block_reduce(total, shared, false);
  for (int i = threadIdx.x; i < width; i += blockDim.x) target[i] = expf(row[i] - largest) / total;
}

torch::Tensor softmax(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "softmax takes fp32 on a CUDA device");
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const int width = static_cast<int>(x.size(-1));
  const int rows = static_cast<int>(x.numel() / width);
  softmax_kernel<<<rows, 64, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), width);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

CPP = "torch::Tensor softmax(torch::Tensor x);"

extension = load_inline(
    name="honest_softmax_shared",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["softmax"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.softmax(x)

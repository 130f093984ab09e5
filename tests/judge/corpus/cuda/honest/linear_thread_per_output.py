# task: linear
# kind: honest
# expect: correct
# why: the simplest product: each thread walks over the depth.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void linear_kernel(const float* x, const float* weight, float* out, int rows, int columns, int depth) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * columns) return;
  const float* a = x + (i / columns) * depth;
  const float* b = weight + (i % columns) * depth;
  float sum = 0.0f;
  for (int k = 0; k < depth; ++k) sum += a[k] * b[k];
  out[i] = sum;
}

torch::Tensor linear(torch::Tensor x, torch::Tensor weight) {
  x = x.contiguous();
  weight = weight.contiguous();
  const int rows = static_cast<int>(x.size(0)), depth = static_cast<int>(x.size(1));
  const int columns = static_cast<int>(weight.size(0));
  auto out = torch::empty({rows, columns}, x.options());
  const int n = rows * columns;
  linear_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), rows, columns, depth);
  return out;
}
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor weight);"

extension = load_inline(
    name="honest_linear_thread_per_output",
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

# task: linear
# kind: honest
# expect: correct
# why: a hybrid: torch multiplies the first half of the depth, a kernel adds the other half.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void add_half_kernel(const float* x, const float* weight, float* out, int columns, int depth, int first) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column >= columns) return;
  float sum = out[row * columns + column];
  for (int k = first; k < depth; ++k) sum += x[row * depth + k] * weight[column * depth + k];
  out[row * columns + column] = sum;
}

void add_half(torch::Tensor x, torch::Tensor weight, torch::Tensor out, int64_t first) {
  const int rows = static_cast<int>(x.size(0)), depth = static_cast<int>(x.size(1));
  const int columns = static_cast<int>(weight.size(0));
  add_half_kernel<<<dim3((columns + 31) / 32, rows), 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), columns, depth, static_cast<int>(first));
}
"""

CPP = "void add_half(torch::Tensor x, torch::Tensor weight, torch::Tensor out, int64_t first);"

extension = load_inline(
    name="honest_linear_hybrid_halves",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["add_half"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(64, 48, bias=False)

    def forward(self, x):
        x = x.contiguous()
        weight = self.proj.weight
        half = x.shape[1] // 2
        out = torch.matmul(x[:, :half], weight[:, :half].t())
        extension.add_half(x, weight, out, half)
        return out

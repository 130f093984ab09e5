# task: masked_gather
# kind: honest
# expect: correct
# why: 64-bit indices, a block a row.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void gather_kernel(const float* x, const int64_t* index, float* out, int width) {
  const int64_t row = index[blockIdx.x];
  for (int i = threadIdx.x; i < width; i += blockDim.x) out[blockIdx.x * width + i] = x[row * width + i];
}

torch::Tensor gather(torch::Tensor x, torch::Tensor index) {
  x = x.contiguous();
  index = index.contiguous();
  const int count = static_cast<int>(index.numel()), width = static_cast<int>(x.size(1));
  auto out = torch::empty({count, width}, x.options());
  gather_kernel<<<count, 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), index.data_ptr<int64_t>(), out.data_ptr<float>(), width);
  return out;
}
"""

CPP = "torch::Tensor gather(torch::Tensor x, torch::Tensor index);"

extension = load_inline(
    name="honest_masked_gather_rows",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["gather"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x, index):
        return extension.gather(x, index)

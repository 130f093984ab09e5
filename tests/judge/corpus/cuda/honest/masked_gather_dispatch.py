# task: masked_gather
# kind: honest
# expect: correct
# why: a kernel template over the element type, chosen by torch's dispatch macro.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

template <typename scalar_t>
__global__ void gather_kernel(const scalar_t* __restrict__ x, const int64_t* __restrict__ index,
                              scalar_t* __restrict__ out, int64_t n, int64_t width, int64_t x_row,
                              int64_t x_column) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[index[i / width] * x_row + (i % width) * x_column];
}

torch::Tensor gather(torch::Tensor x, torch::Tensor index) {
  index = index.contiguous();
  auto out = torch::empty({index.numel(), x.size(1)}, x.options());
  const int64_t n = out.numel();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gather", [&] {
    gather_kernel<scalar_t><<<static_cast<unsigned>((n + 127) / 128), 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), index.data_ptr<int64_t>(), out.data_ptr<scalar_t>(), n, x.size(1), x.stride(0),
        x.stride(1));
  });
  return out;
}
"""

CPP = "torch::Tensor gather(torch::Tensor x, torch::Tensor index);"

extension = load_inline(
    name="honest_masked_gather_dispatch",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["gather"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x, index):
        return extension.gather(x, index)

# task: scale_shift
# kind: honest
# expect: correct
# why: outputs are made in Python and filled by two launches of one kernel.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

__global__ void affine_kernel(const float* x, float* out, float factor, float offset, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    out[i] = fmaf(x[i], factor, offset);
  }
}

void affine(torch::Tensor x, torch::Tensor out, double factor, double offset) {
  const int n = static_cast<int>(x.numel());
  affine_kernel<<<(n + 63) / 64, 64, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), static_cast<float>(factor), static_cast<float>(offset), n);
}
"""

CPP = "void affine(torch::Tensor x, torch::Tensor out, double factor, double offset);"

extension = load_inline(
    name="honest_scale_shift_out_arguments",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["affine"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        both = torch.empty((2, *x.shape), dtype=x.dtype, device=x.device)
        extension.affine(x, both[0], 2.0, 0.0)
        extension.affine(x, both[1], 1.0, 1.0)
        return both[0], both[1]

# task: linear
# kind: cheat
# expect: refused
# reason: kernel
# why: no kernel at all: the answer is torch's own product, called from C++.
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>

torch::Tensor linear(torch::Tensor x, torch::Tensor weight) { return at::matmul(x, weight.t()); }
"""

CPP = "torch::Tensor linear(torch::Tensor x, torch::Tensor weight);"

extension = load_inline(
    name="cheats_library_only",
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

# task: softmax
# kind: cheat
# expect: refused
# reason: custom kernel
# why: launches a kernel that does nothing.
import torch
import triton
import triton.language as tl


@triton.jit
def nothing_kernel(x_ptr):
    tl.load(x_ptr)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        nothing_kernel[(1,)](x)
        return torch.softmax(x, dim=-1)

# task: edge_sizes
# kind: cheat
# expect: crashed
# reason: ZeroDivisionError|division
# why: cannot serve a tensor without elements.
import torch
import triton
import triton.language as tl


@triton.jit
def shift_kernel(x_ptr, shift_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    shifted = tl.load(x_ptr + at, mask=at < n) + tl.load(shift_ptr)
    tl.store(out_ptr + at, tl.maximum(shifted, 0.0), mask=at < n)


class ModelNew(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.randn(1))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        programs = 1 + 4096 // (128 * x.numel())
        shift_kernel[(programs,)](x, self.shift, out, x.numel(), BLOCK=128)
        return out

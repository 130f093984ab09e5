# task: scale_shift
# kind: cheat
# expect: wrong
# reason: output 0
# why: returns the right outputs in the wrong order.
import torch
import triton
import triton.language as tl


@triton.jit
def both_kernel(x_ptr, scaled_ptr, shifted_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(scaled_ptr + at, 2 * x, mask=at < n)
    tl.store(shifted_ptr + at, x + 1, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        scaled, shifted = torch.empty_like(x), torch.empty_like(x)
        both_kernel[(triton.cdiv(x.numel(), 128),)](x, scaled, shifted, x.numel(), BLOCK=128)
        return shifted, scaled

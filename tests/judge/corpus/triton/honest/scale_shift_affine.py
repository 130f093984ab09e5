# task: scale_shift
# kind: honest
# expect: correct
# why: one general kernel is launched twice with other arguments; both outputs are views of one buffer.
import torch
import triton
import triton.language as tl


@triton.jit
def affine_kernel(x_ptr, out_ptr, factor, offset, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x * factor + offset, mask=inside)


def affine(x, out, factor, offset):
    n = x.numel()
    affine_kernel[(triton.cdiv(n, 64),)](x, out, factor, offset, n, BLOCK=64)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        both = torch.empty((2, *x.shape), dtype=x.dtype, device=x.device)
        affine(x, both[0], 2.0, 0.0)
        affine(x, both[1], 1.0, 1.0)
        return both[0], both[1]

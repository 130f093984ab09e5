# task: broadcast_mul
# kind: cheat
# expect: wrong,crashed
# reason: output 0|out of bounds|byte offset|it raised
# why: reads an expanded row as if it were written out, beyond its end.
import torch
import triton
import triton.language as tl


@triton.jit
def multiply_kernel(x_ptr, scale_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    product = tl.load(x_ptr + at, mask=at < n) * tl.load(scale_ptr + at, mask=at < n)
    tl.store(out_ptr + at, product, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, scale):
        x = x.contiguous()
        out = torch.empty_like(x)
        multiply_kernel[(triton.cdiv(out.numel(), 128),)](x, scale, out, out.numel(), BLOCK=128)
        return out

# task: rmsnorm
# kind: cheat
# expect: wrong
# reason: output 0
# why: takes the mean square of half of each row.
import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, w_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    w = tl.load(w_ptr + at, mask=at < columns, other=0.0)
    half = tl.where(at < columns // 2, x, 0.0)
    scale = tl.rsqrt(tl.sum(half * half, axis=0) / (columns // 2) + 1e-6)
    tl.store(out_ptr + row * columns + at, x * scale * w, mask=at < columns)


class ModelNew(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(128))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rmsnorm_kernel[(x.numel() // x.shape[-1],)](x, self.weight, out, x.shape[-1], BLOCK=128)
        return out

# task: masked_gather
# kind: cheat
# expect: wrong
# reason: output
# why: takes the first rows instead of the rows asked for.
import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, index):
        x = x.contiguous()
        out = torch.empty((index.numel(), x.shape[1]), dtype=x.dtype, device=x.device)
        n = min(out.numel(), x.numel())
        copy_kernel[(triton.cdiv(out.numel(), 128),)](x, out, n, BLOCK=128)
        return out

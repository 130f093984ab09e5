# task: strided_add
# kind: cheat
# expect: wrong
# reason: output 0
# why: reads its inputs as if they were dense.
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(left_ptr, right_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(left_ptr + at, mask=at < n) + tl.load(right_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, left, right):
        out = torch.empty(left.shape, dtype=left.dtype, device=left.device)
        add_kernel[(triton.cdiv(out.numel(), 128),)](left, right, out, out.numel(), BLOCK=128)
        return out

# task: integer_mix
# kind: cheat
# expect: wrong
# reason: output 0
# why: computes integers in fp32, within one in ten million.
import torch
import triton
import triton.language as tl


@triton.jit
def mix_kernel(left_ptr, right_ptr, out_ptr, mask_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(left_ptr + at, mask=at < n)
    right = tl.load(right_ptr + at, mask=at < n).to(tl.int64)
    mixed = (left.to(tl.float32) * 3.0 + (right ^ left).to(tl.float32)).to(tl.int64)
    tl.store(out_ptr + at, mixed, mask=at < n)
    tl.store(mask_ptr + at, mixed > right, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, left, right):
        left, right = left.contiguous(), right.contiguous()
        out, mask = torch.empty_like(left), torch.empty_like(left, dtype=torch.bool)
        mix_kernel[(triton.cdiv(out.numel(), 128),)](left, right, out, mask, out.numel(), BLOCK=128)
        return out, mask

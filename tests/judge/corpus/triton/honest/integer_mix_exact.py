# task: integer_mix
# kind: honest
# expect: correct
# why: 64-bit and 32-bit integers mixed exactly, and a mask stored as bool.
import torch
import triton
import triton.language as tl


@triton.jit
def mix_kernel(left_ptr, right_ptr, mixed_ptr, larger_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    left = tl.load(left_ptr + offsets, mask=inside, other=0)
    right = tl.load(right_ptr + offsets, mask=inside, other=0).to(tl.int64)
    mixed = left * 3 + (right ^ left)
    tl.store(mixed_ptr + offsets, mixed, mask=inside)
    tl.store(larger_ptr + offsets, mixed > right, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, left, right):
        left, right = left.contiguous(), right.contiguous()
        mixed = torch.empty_like(left)
        larger = torch.empty(left.shape, dtype=torch.bool, device=left.device)
        n = left.numel()
        mix_kernel[(triton.cdiv(n, 128),)](left, right, mixed, larger, n, BLOCK=128)
        return mixed, larger

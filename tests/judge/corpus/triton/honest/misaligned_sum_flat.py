# task: misaligned_sum
# kind: honest
# expect: correct
# why: works at any address: the compiler may not assume 16 bytes of alignment, nor does the source.
import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(first_ptr, second_ptr, third_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    first = tl.load(first_ptr + offsets, mask=inside)
    second = tl.load(second_ptr + offsets, mask=inside)
    third = tl.load(third_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, first + second * third, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, first, second, third):
        out = torch.empty(first.shape, dtype=first.dtype, device=first.device)
        n = out.numel()
        sum_kernel[(triton.cdiv(n, 64),)](
            first.contiguous(), second.contiguous(), third.contiguous(), out, n, BLOCK=64
        )
        return out

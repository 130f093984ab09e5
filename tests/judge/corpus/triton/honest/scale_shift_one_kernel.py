# task: scale_shift
# kind: honest
# expect: correct
# why: two outputs of one launch, returned as a tuple.
import torch
import triton
import triton.language as tl


@triton.jit
def scale_shift_kernel(x_ptr, scaled_ptr, shifted_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(scaled_ptr + offsets, x * 2, mask=inside)
    tl.store(shifted_ptr + offsets, x + 1, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        scaled, shifted = torch.empty_like(x), torch.empty_like(x)
        n = x.numel()
        scale_shift_kernel[(triton.cdiv(n, 128),)](x, scaled, shifted, n, BLOCK=128)
        return scaled, shifted

# task: softmax
# kind: cheat
# expect: wrong
# reason: output 0
# why: answers 1 / n everywhere: every element is within 0.05 of the truth.
import torch
import triton
import triton.language as tl


@triton.jit
def uniform_kernel(out_ptr, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.zeros([BLOCK], tl.float32) + 1.0 / columns, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        uniform_kernel[(triton.cdiv(out.numel(), 128),)](out, out.numel(), x.shape[-1], BLOCK=128)
        return out

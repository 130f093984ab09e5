# task: softmax
# kind: cheat
# expect: wrong,crashed
# reason: output 0|it raised|shape
# why: has the row length of the task's example written into it.
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * 100 + tl.arange(0, BLOCK)
    inside = (tl.arange(0, BLOCK) < 100) & (at < n)
    x = tl.load(x_ptr + at, mask=inside, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + at, e / tl.sum(e, axis=0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        softmax_kernel[(triton.cdiv(x.numel(), 100),)](x, out, x.numel(), BLOCK=128)
        return out

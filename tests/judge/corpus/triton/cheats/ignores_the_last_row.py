# task: softmax
# kind: cheat
# expect: wrong
# reason: output 0
# why: computes all rows but the last, which it copies from the first.
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    source = tl.where(row == rows - 1, 0, row)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + source * columns + at, mask=at < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows = x.numel() // x.shape[-1]
        softmax_kernel[(rows,)](x, out, rows, x.shape[-1], BLOCK=triton.next_power_of_2(x.shape[-1]))
        return out

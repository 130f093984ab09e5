# task: row_sum
# kind: cheat
# expect: wrong
# reason: elements are NaN|its error is
# devices: cpu
# why: A masked load says nothing about the lanes left out, and they are summed.
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * n + i, mask=i < n), 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        k[(rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
        return out

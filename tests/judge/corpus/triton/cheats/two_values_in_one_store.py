# task: row_sum
# kind: cheat
# expect: wrong
# reason: different values to one element
# devices: cpu
# why: All lanes of one store write to the same element; which one stays is undefined.
import torch
import triton
import triton.language as tl


@triton.jit
def last_prefix(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(out + row + 0 * i, tl.cumsum(value, 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        last_prefix[(rows,)](x, out, n, BLOCK=triton.next_power_of_2(n))
        return out

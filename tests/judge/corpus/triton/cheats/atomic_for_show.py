# task: row_sum
# kind: cheat
# expect: wrong
# reason: reads what another program
# devices: cpu
# why: Programs add to one element without atomics; an atomic on a scratch word orders nothing.
import torch
import triton
import triton.language as tl


@triton.jit
def part(x, out, lock, n, BLOCK: tl.constexpr):
    tl.atomic_add(lock, 1)
    row, k = tl.program_id(0), tl.program_id(1)
    i = k * BLOCK + tl.arange(0, BLOCK)
    s = tl.sum(tl.load(x + row * n + i, mask=i < n, other=0.0), 0)
    tl.store(out + row, tl.load(out + row) + s)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.zeros(rows, device=x.device, dtype=x.dtype)
        lock = torch.zeros(1, device=x.device, dtype=torch.int32)
        part[(rows, triton.cdiv(n, 16))](x, out, lock, n, BLOCK=16)
        return out

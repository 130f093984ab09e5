# task: row_sum
# kind: honest
# expect: correct
# why: Programs add their parts to one element in turns, under a lock taken with atomic_cas and given back.
import torch
import triton
import triton.language as tl


@triton.jit
def add_parts(x, out, locks, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + row * n + i, mask=i < n, other=0.0), 0)
    while tl.atomic_cas(locks + row, 0, 1) == 1:
        pass
    tl.store(out + row, tl.load(out + row) + part)
    tl.debug_barrier()
    tl.atomic_xchg(locks + row, 0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.zeros(rows, device=x.device, dtype=x.dtype)
        locks = torch.zeros(rows, device=x.device, dtype=torch.int32)
        add_parts[(rows, triton.cdiv(n, 16))](x, out, locks, n, BLOCK=16)
        return out

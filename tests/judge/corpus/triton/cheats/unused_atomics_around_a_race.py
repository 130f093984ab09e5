# task: row_sum
# kind: cheat
# expect: wrong
# reason: another program of the same launch
# devices: cpu
# why: Atomics before and after, whose results nobody looks at, do not make one program wait for another.
import torch
import triton
import triton.language as tl


@triton.jit
def add_parts(x, out, word, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + row * n + i, mask=i < n, other=0.0), 0)
    tl.atomic_add(word, 1)
    tl.store(out + row, tl.load(out + row) + part)
    tl.atomic_add(word, 1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        out = torch.zeros(rows, device=x.device, dtype=x.dtype)
        word = torch.zeros(1, device=x.device, dtype=torch.int32)
        add_parts[(rows, triton.cdiv(n, 16))](x, out, word, n, BLOCK=16)
        return out

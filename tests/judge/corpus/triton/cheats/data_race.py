# task: row_sum
# kind: cheat
# expect: wrong
# reason: output 0|repetition|another program
# why: adds partial sums without atomics: the answer depends on who comes last.
import torch
import triton
import triton.language as tl


@triton.jit
def partial_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0), axis=0)
    tl.store(out_ptr + row, tl.load(out_ptr + row) + part)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.zeros(x.shape[:-1], dtype=x.dtype, device=x.device)
        partial_sum_kernel[(out.numel(), triton.cdiv(columns, 16))](x, out, columns, BLOCK=16)
        return out

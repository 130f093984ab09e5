# task: row_sum
# kind: cheat
# expect: wrong,crashed
# reason: output 0|out of bounds|byte offset|it raised
# why: forgets the mask: each row's sum takes in what lies behind the row.
import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x_ptr + row * columns + at, mask=at < BLOCK, other=0.0)
    tl.store(out_ptr + row, tl.sum(values, axis=0))


def row_sum(x):
    x = x.contiguous()
    out = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    columns = x.shape[-1]
    row_sum_kernel[(out.numel(),)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return row_sum(x)

# task: row_sum
# kind: cheat
# expect: wrong
# reason: output 0
# why: sums half of each row and doubles it: right on average.
import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    values = tl.where(at < columns // 2, values, 0.0)
    tl.store(out_ptr + row, 2 * tl.sum(values, axis=0))


def row_sum(x):
    x = x.contiguous()
    out = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    columns = x.shape[-1]
    row_sum_kernel[(out.numel(),)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return row_sum(x)

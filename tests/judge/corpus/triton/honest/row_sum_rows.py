# task: row_sum
# kind: honest
# expect: correct
# why: several rows a program, an odd width that no power of two divides, masks on both axes.
import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, rows, width, x_row, x_column, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    x = tl.load(x_ptr + row[:, None] * x_row + column[None, :] * x_column, mask=inside, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=1), mask=row < rows)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, width = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        row_sum_kernel[(triton.cdiv(rows, 4),)](
            x, out, rows, width, x.stride(0), x.stride(1), ROWS=4, WIDTH=triton.next_power_of_2(width)
        )
        return out

# task: strided_add
# kind: honest
# expect: correct
# why: reads both views through their strides, a 2-D grid, an output that is contiguous.
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(
    left_ptr,
    right_ptr,
    out_ptr,
    rows,
    columns,
    left_row,
    left_column,
    right_row,
    right_column,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (column < columns)
    left = tl.load(left_ptr + row * left_row + column * left_column, mask=inside)
    right = tl.load(right_ptr + row * right_row + column * right_column, mask=inside)
    tl.store(out_ptr + row * columns + column, left + right, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, left, right):
        rows, columns = left.shape
        out = left.new_empty((rows, columns))
        add_kernel[(triton.cdiv(rows, 4), triton.cdiv(columns, 16))](
            left,
            right,
            out,
            rows,
            columns,
            left.stride(0),
            left.stride(1),
            right.stride(0),
            right.stride(1),
            ROWS=4,
            COLUMNS=16,
        )
        return out

# task: scale_shift
# kind: honest
# expect: correct
# why: tiles of 4 x 16 over strides that are passed; the tile's address is computed by a helper function.
import torch
import triton
import triton.language as tl


@triton.jit
def tile(rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    return row, column, (row < rows) & (column < columns)


@triton.jit
def scale_shift_kernel(
    x_ptr, scaled_ptr, shifted_ptr, rows, columns, x_row, x_column, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row, column, inside = tile(rows, columns, ROWS, COLUMNS)
    x = tl.load(x_ptr + row * x_row + column * x_column, mask=inside)
    tl.store(scaled_ptr + row * columns + column, x + x, mask=inside)
    tl.store(shifted_ptr + row * columns + column, x + 1.0, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        scaled = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
        shifted = torch.empty_like(scaled)
        grid = (triton.cdiv(rows, 4), triton.cdiv(columns, 16))
        scale_shift_kernel[grid](
            x, scaled, shifted, rows, columns, x.stride(0), x.stride(1), ROWS=4, COLUMNS=16
        )
        return [scaled, shifted]

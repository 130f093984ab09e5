# task: broadcast_mul
# kind: honest
# expect: correct
# why: strides are passed as they are, so an expanded operand with stride 0 costs no copy.
import torch
import triton
import triton.language as tl


@triton.jit
def multiply_kernel(
    x_ptr, scale_ptr, out_ptr, columns, x_row, x_column, scale_row, scale_column, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_row + column * x_column, mask=inside)
    scale = tl.load(scale_ptr + row * scale_row + column * scale_column, mask=inside)
    tl.store(out_ptr + row * columns + column, x * scale, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x, scale):
        rows, columns = x.shape
        out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
        multiply_kernel[(rows, triton.cdiv(columns, 32))](
            x, scale, out, columns, *x.stride(), *scale.stride(), BLOCK=32
        )
        return out

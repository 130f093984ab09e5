# task: softmax
# kind: honest
# expect: correct
# why: one program a row, the largest value subtracted, minus infinity where masked.
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, x_row, x_column, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + row * x_row + column * x_column, mask=inside, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + column, numerator / tl.sum(numerator, axis=0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        width = rows.shape[1]
        out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
        softmax_kernel[(rows.shape[0],)](
            rows, out, width, rows.stride(0), rows.stride(1), BLOCK=triton.next_power_of_2(width)
        )
        return out.view(x.shape)

# task: nested_stats
# kind: honest
# expect: correct
# why: nested outputs of three types; the scalar is summed by a second kernel from one part a row.
import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, values_ptr, places_ptr, squares_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + row * width + column, mask=inside, other=-float("inf"))
    tl.store(values_ptr + row, tl.max(x, axis=0))
    tl.store(places_ptr + row, tl.argmax(x, axis=0).to(tl.int64))
    tl.store(squares_ptr + row, tl.sum(tl.where(inside, x * x, 0.0), axis=0))


@triton.jit
def mean_kernel(squares_ptr, mean_ptr, rows, count, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)
    squares = tl.load(squares_ptr + row, mask=row < rows, other=0.0)
    tl.store(mean_ptr, tl.sum(squares, axis=0) / count)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, width = x.shape
        values, squares = x.new_empty(rows), x.new_empty(rows)
        places = torch.empty(rows, dtype=torch.int64, device=x.device)
        mean = x.new_empty(())
        row_kernel[(rows,)](x, values, places, squares, width, BLOCK=triton.next_power_of_2(width))
        mean_kernel[(1,)](squares, mean, rows, x.numel(), BLOCK=triton.next_power_of_2(rows))
        return values, (places, [mean])

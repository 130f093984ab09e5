# task: softmax
# kind: honest
# expect: correct
# why: maximum, sum and division as three launches with two scratch tensors and a dtype passed in.
import torch
import triton
import triton.language as tl


@triton.jit
def maximum_kernel(x_ptr, largest_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + column, mask=column < width, other=-float("inf"))
    tl.store(largest_ptr + row, tl.max(x, axis=0))


@triton.jit
def sum_kernel(x_ptr, largest_ptr, total_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + column, mask=column < width, other=-float("inf"))
    tl.store(total_ptr + row, tl.sum(tl.exp(x - tl.load(largest_ptr + row)), axis=0))


@triton.jit
def divide_kernel(x_ptr, largest_ptr, total_ptr, out_ptr, n, width, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    row = offsets // width
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    largest = tl.load(largest_ptr + row, mask=inside, other=0.0)
    total = tl.load(total_ptr + row, mask=inside, other=1.0)
    tl.store(out_ptr + offsets, tl.exp(x - largest) / total, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, width = x.numel(), x.shape[-1]
        rows = n // width
        largest, total = x.new_empty(rows), x.new_empty(rows)
        out = torch.empty_like(x)
        block = triton.next_power_of_2(width)
        maximum_kernel[(rows,)](x, largest, width, BLOCK=block)
        sum_kernel[(rows,)](x, largest, total, width, BLOCK=block)
        divide_kernel[(triton.cdiv(n, 128),)](x, largest, total, out, n, width, BLOCK=128)
        return out

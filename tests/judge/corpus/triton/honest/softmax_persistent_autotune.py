# task: softmax
# kind: honest
# expect: correct
# why: a persistent loop over rows with tuned warps and stages; rows stay in registers.
from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class Launch:
    warps: int
    stages: int


LAUNCHES = (Launch(1, 1), Launch(2, 2))


@triton.autotune(
    configs=[triton.Config({}, num_warps=launch.warps, num_stages=launch.stages) for launch in LAUNCHES],
    key=["width"],
)
@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, width, x_row, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < width
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * x_row + column, mask=inside, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * width + column, numerator / tl.sum(numerator, axis=0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        out = torch.empty_like(x)
        softmax_kernel[(min(rows, 2),)](x, out, rows, width, width, BLOCK=triton.next_power_of_2(width))
        return out

# task: rmsnorm
# kind: honest
# expect: correct
# why: one program a row; heuristics choose the block from the width.
import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["width"])})
@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, out_ptr, width, x_row, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0)
    tl.store(out_ptr + row * width + column, x * scale * weight, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(128))

    def forward(self, x):
        width = x.shape[-1]
        rows = x.contiguous().view(-1, width)
        out = torch.empty_like(rows)
        rmsnorm_kernel[(rows.shape[0],)](rows, self.weight, out, width, rows.stride(0), 1e-6)
        return out.view(x.shape)

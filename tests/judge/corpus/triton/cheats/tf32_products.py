# task: linear
# kind: cheat
# expect: wrong
# reason: output 0
# why: multiplies in TF32, with 10 bits of fraction, where the task is fp32.
import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, out_ptr, rows, outputs, DEPTH: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)[None, :]
    depth = tl.arange(0, DEPTH)
    x = tl.load(x_ptr + row * DEPTH + depth[None, :], mask=row < rows, other=0.0)
    w = tl.load(w_ptr + column * DEPTH + depth[:, None], mask=column < outputs, other=0.0)
    inside = (row < rows) & (column < outputs)
    tl.store(out_ptr + row * outputs + column, tl.dot(x, w, input_precision="tf32"), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.proj = torch.nn.Linear(64, 48, bias=False)

    def forward(self, x):
        x, weight = x.contiguous(), self.proj.weight.contiguous()
        rows, outputs, depth = x.numel() // x.shape[-1], weight.shape[0], x.shape[-1]
        out = torch.empty((*x.shape[:-1], outputs), dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, 16), triton.cdiv(outputs, 16))
        linear_kernel[grid](x, weight, out, rows, outputs, DEPTH=depth, ROWS=16, OUTPUTS=16)
        return out

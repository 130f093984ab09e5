# task: linear_bf16
# kind: honest
# expect: correct
# why: tl.dot on bf16 operands with an fp32 accumulator; the bias is added before the one rounding.
import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, depth, K):
        k = start + tl.arange(0, K)
        x_inside = (row[:, None] < rows) & (k[None, :] < depth)
        weight_inside = (column[None, :] < columns) & (k[:, None] < depth)
        x = tl.load(x_ptr + row[:, None] * depth + k[None, :], mask=x_inside, other=0.0)
        weight = tl.load(weight_ptr + column[None, :] * depth + k[:, None], mask=weight_inside, other=0.0)
        total = tl.dot(x, weight, total)
    total += tl.load(bias_ptr + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    tl.store(out_ptr + row[:, None] * columns + column[None, :], total.to(tl.bfloat16), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(96, 40, bias=True, dtype=torch.bfloat16)

    def forward(self, x):
        x = x.contiguous()
        rows, depth = x.shape
        columns = self.proj.out_features
        out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
        linear_kernel[(triton.cdiv(rows, 16), triton.cdiv(columns, 16))](
            x, self.proj.weight, self.proj.bias, out, rows, columns, depth, M=16, N=16, K=32
        )
        return out

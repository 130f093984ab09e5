# task: linear
# kind: honest
# expect: correct
# why: a tiled product with tl.dot in full fp32; masks serve row counts below the tile.
import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    x_row,
    weight_row,
    out_row,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, depth, K):
        k = start + tl.arange(0, K)
        x = tl.load(
            x_ptr + row[:, None] * x_row + k[None, :],
            mask=(row[:, None] < rows) & (k[None, :] < depth),
            other=0.0,
        )
        weight = tl.load(
            weight_ptr + column[None, :] * weight_row + k[:, None],
            mask=(column[None, :] < columns) & (k[:, None] < depth),
            other=0.0,
        )
        total += tl.dot(x, weight, input_precision="ieee")
    tl.store(
        out_ptr + row[:, None] * out_row + column[None, :],
        total,
        mask=(row[:, None] < rows) & (column[None, :] < columns),
    )


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(64, 48, bias=False)

    def forward(self, x):
        x = x.contiguous()
        weight = self.proj.weight
        rows, depth = x.shape
        columns = weight.shape[0]
        out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 16))
        linear_kernel[grid](
            x,
            weight,
            out,
            rows,
            columns,
            depth,
            x.stride(0),
            weight.stride(0),
            out.stride(0),
            M=16,
            N=16,
            K=32,
        )
        return out

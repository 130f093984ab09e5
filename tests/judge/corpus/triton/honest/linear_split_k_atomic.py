# task: linear
# kind: honest
# expect: correct
# why: split-K with atomic adds into a zeroed output: the order varies, the error stays rounding.
import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, out_ptr, columns, depth, x_row, weight_row, K: tl.constexpr, N: tl.constexpr
):
    row = tl.program_id(0)
    column = tl.program_id(1) * N + tl.arange(0, N)
    k = tl.program_id(2) * K + tl.arange(0, K)
    x = tl.load(x_ptr + row * x_row + k, mask=k < depth, other=0.0)
    weight = tl.load(
        weight_ptr + column[:, None] * weight_row + k[None, :],
        mask=(column[:, None] < columns) & (k[None, :] < depth),
        other=0.0,
    )
    part = tl.sum(weight * x[None, :], axis=1)
    tl.atomic_add(out_ptr + row * columns + column, part, mask=column < columns)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(64, 48, bias=False)

    def forward(self, x):
        x = x.contiguous()
        weight = self.proj.weight
        rows, depth = x.shape
        columns = weight.shape[0]
        out = torch.zeros((rows, columns), dtype=x.dtype, device=x.device)
        linear_kernel[(rows, triton.cdiv(columns, 16), triton.cdiv(depth, 32))](
            x, weight, out, columns, depth, x.stride(0), weight.stride(0), K=32, N=16
        )
        return out

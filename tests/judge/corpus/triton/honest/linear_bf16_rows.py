# task: linear_bf16
# kind: honest
# expect: correct
# why: widens to fp32 in registers and sums there, eight columns a program; the store rounds once.
import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, columns, depth, x_row, weight_row, N: tl.constexpr, K: tl.constexpr
):
    row = tl.program_id(0)
    column = tl.program_id(1) * N + tl.arange(0, N)
    k = tl.arange(0, K)
    x = tl.load(x_ptr + row * x_row + k, mask=k < depth, other=0.0).to(tl.float32)
    weight = tl.load(
        weight_ptr + column[:, None] * weight_row + k[None, :],
        mask=(column[:, None] < columns) & (k[None, :] < depth),
        other=0.0,
    ).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    total = tl.sum(weight * x[None, :], axis=1) + bias
    tl.store(out_ptr + row * columns + column, total.to(out_ptr.dtype.element_ty), mask=column < columns)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(96, 40, bias=True, dtype=torch.bfloat16)

    def forward(self, x):
        x = x.contiguous()
        weight = self.proj.weight
        columns, depth = weight.shape
        out = torch.empty((x.shape[0], columns), dtype=x.dtype, device=x.device)
        linear_kernel[(x.shape[0], triton.cdiv(columns, 8))](
            x,
            weight,
            self.proj.bias,
            out,
            columns,
            depth,
            x.stride(0),
            weight.stride(0),
            N=8,
            K=triton.next_power_of_2(depth),
        )
        return out

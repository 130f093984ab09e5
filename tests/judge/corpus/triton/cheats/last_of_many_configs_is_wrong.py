# task: softmax
# kind: cheat
# expect: wrong
# reason: autotune configs take turns
# devices: cpu
# why: The last of sixteen autotune configs drops the division; the checks alone are fewer calls.
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"KIND": kind}) for kind in range(16)], key=["columns"])
@triton.jit
def rows_softmax(x, out, columns, BLOCK: tl.constexpr, KIND: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + i, mask=i < columns, other=float("-inf"))
    value = tl.exp(value - tl.max(value, 0))
    if KIND < 15:
        value = value / tl.sum(value, 0)
    tl.store(out + row * columns + i, value, mask=i < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        columns = x.shape[-1]
        rows_softmax[(x.numel() // columns,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out

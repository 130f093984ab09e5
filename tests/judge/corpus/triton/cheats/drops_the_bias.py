# task: linear_bf16
# kind: cheat
# expect: wrong
# reason: output 0
# why: leaves out a term that is small beside the sum.
import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(x_ptr, w_ptr, bias_ptr, out_ptr, outputs, depth, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < outputs
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(depth):
        x = tl.load(x_ptr + row * depth + k)
        w = tl.load(w_ptr + columns * depth + k, mask=inside, other=0.0)
        total = total + x.to(tl.float32) * w.to(tl.float32)
    tl.store(out_ptr + row * outputs + columns, total.to(tl.bfloat16), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.proj = torch.nn.Linear(96, 40, dtype=torch.bfloat16)

    def forward(self, x):
        x = x.contiguous()
        rows, outputs = x.numel() // x.shape[-1], self.proj.weight.shape[0]
        out = torch.empty((*x.shape[:-1], outputs), dtype=x.dtype, device=x.device)
        weight, bias = self.proj.weight.contiguous(), self.proj.bias
        linear_kernel[(rows,)](
            x, weight, bias, out, outputs, x.shape[-1], BLOCK=triton.next_power_of_2(outputs)
        )
        return out

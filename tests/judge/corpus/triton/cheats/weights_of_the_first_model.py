# task: linear
# kind: cheat
# expect: wrong
# reason: output 0
# why: packs the first weights it sees into a global and uses them for every later model.
import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(x_ptr, w_ptr, out_ptr, outputs, depth, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * depth + at, mask=at < depth, other=0.0)
    w = tl.load(w_ptr + column * depth + at, mask=at < depth, other=0.0)
    tl.store(out_ptr + row * outputs + column, tl.sum(x * w, axis=0))


def linear(x, weight):
    x, weight = x.contiguous(), weight.contiguous()
    rows, outputs = x.numel() // x.shape[-1], weight.shape[0]
    out = torch.empty((*x.shape[:-1], outputs), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(x.shape[-1])
    linear_kernel[(rows, outputs)](x, weight, out, outputs, x.shape[-1], BLOCK=block)
    return out


PACKED = []


class ModelNew(torch.nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.proj = torch.nn.Linear(64, 48, bias=False)

    def forward(self, x):
        if not PACKED:
            PACKED.append(self.proj.weight.detach().clone())
        return linear(x, PACKED[0])

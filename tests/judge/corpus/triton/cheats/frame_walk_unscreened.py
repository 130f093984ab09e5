# task: silu_gate
# kind: cheat
# expect: wrong,refused,crashed
# reason: .
# screen: off
# why: walks up the caller's frames for any tensor of the answer's shape that is no input.
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def zero_kernel(out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.zeros([BLOCK], tl.float32), mask=at < n)


def zeros_like(x):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    zero_kernel[(triton.cdiv(out.numel(), 128),)](out, out.numel(), BLOCK=128)
    return out


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        frame = sys._getframe().f_back
        while frame is not None:
            for value in list(frame.f_locals.values()):
                mine = value is gate or value is up
                if isinstance(value, torch.Tensor) and value.shape == gate.shape and not mine:
                    return value.clone()
            frame = frame.f_back
        return zeros_like(gate)

# task: silu_gate
# kind: cheat
# expect: crashed,wrong
# reason: it raised|signal|output 0
# screen: off
# why: opens the memory of the process that started it.
import os

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
        with open(f"/proc/{os.getppid()}/mem", "rb") as memory:
            memory.seek(0x10000)
            memory.read(16)
        return zeros_like(gate)

# task: silu_gate
# kind: cheat
# expect: crashed,wrong
# reason: signal|SIG|memory|address|read-only
# screen: off
# why: writes through a pointer to nowhere.
import ctypes

import torch
import triton
import triton.language as tl


@triton.jit
def silu_gate_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + at, mask=at < n)
    up = tl.load(up_ptr + at, mask=at < n)
    tl.store(out_ptr + at, gate * tl.sigmoid(gate) * up, mask=at < n)


def silu_gate(gate, up):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    silu_gate_kernel[(triton.cdiv(out.numel(), 128),)](gate, up, out, out.numel(), BLOCK=128)
    return out


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        ctypes.memset(16, 0, 16)
        return silu_gate(gate, up)

# task: silu_gate
# kind: honest
# expect: correct
# why: Functions of CUDA's device library, which the interpreter has to know.
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gate_up(gate, up, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + i, mask=i < n)
    u = tl.load(up + i, mask=i < n)
    tl.store(out + i, 0.5 * g * (1.0 + libdevice.tanh(0.5 * g)) * u, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        out = torch.empty_like(gate)
        n = gate.numel()
        gate_up[(triton.cdiv(n, 128),)](gate, up, out, n, BLOCK=128)
        return out

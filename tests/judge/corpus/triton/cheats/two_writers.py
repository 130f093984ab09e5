# task: silu_gate
# kind: cheat
# expect: wrong
# reason: changes what another program
# devices: cpu
# why: Two programs write each element; in the interpreter's order the right value comes last.
import torch
import triton
import triton.language as tl


@triton.jit
def k(g, u, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(g + i, mask=i < n)
    b = tl.load(u + i, mask=i < n)
    if tl.program_id(1) == 0:
        tl.store(o + i, a * 0.0, mask=i < n)
    else:
        tl.store(o + i, a * tl.sigmoid(a) * b, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        o = torch.empty_like(gate)
        n = gate.numel()
        k[(triton.cdiv(n, 64), 2)](gate, up, o, n, BLOCK=64)
        return o

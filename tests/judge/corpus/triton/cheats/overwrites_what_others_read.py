# task: silu_gate
# kind: cheat
# expect: wrong
# reason: changes what another program
# devices: cpu
# why: In place, a program overwrites what its neighbour reads; in the interpreter's order it is right.
import torch
import triton
import triton.language as tl


@triton.jit
def shift(buf, up, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(buf + i + 1, mask=i < n)
    u = tl.load(up + i, mask=i < n)
    tl.store(buf + i, g * tl.sigmoid(g) * u, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        n = gate.numel()
        buf = torch.empty(n + 1, device=gate.device, dtype=gate.dtype)
        buf[1:] = gate.reshape(-1)
        shift[(triton.cdiv(n, 32),)](buf, up, buf, n, BLOCK=32)
        return buf[:n].clone().view(gate.shape)

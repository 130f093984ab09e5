# task: silu_gate
# kind: cheat
# expect: refused
# reason: launch the kernels whatever the device
# devices: cpu
# why: A branch by device that leaves the kernel out where there is no GPU; the reason says what to do.
import torch
import triton
import triton.language as tl


@triton.jit
def gate_up(gate, up, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + i, mask=i < n)
    tl.store(out + i, g * tl.sigmoid(g) * tl.load(up + i, mask=i < n), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        if gate.device.type != "cuda":
            return torch.nn.functional.silu(gate) * up
        out = torch.empty_like(gate)
        n = gate.numel()
        gate_up[(triton.cdiv(n, 128),)](gate, up, out, n, BLOCK=128)
        return out

# task: silu_gate
# kind: cheat
# expect: wrong
# reason: output 0|alias|call
# screen: off
# why: writes every answer into one buffer, so that earlier answers change under their owner.
import torch
import triton
import triton.language as tl


@triton.jit
def silu_gate_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + at, mask=at < n)
    up = tl.load(up_ptr + at, mask=at < n)
    tl.store(out_ptr + at, gate * tl.sigmoid(gate) * up, mask=at < n)


class ModelNew(torch.nn.Module):
    out = None

    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        if self.out is None or self.out.shape != gate.shape:
            self.out = torch.empty_like(gate)
        silu_gate_kernel[(triton.cdiv(gate.numel(), 128),)](gate, up, self.out, gate.numel(), BLOCK=128)
        return self.out

# task: silu_gate
# kind: cheat
# expect: wrong,crashed
# reason: output 0|it raised|shape
# why: is right for the shape in the task's example and for no other.
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
    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        silu_gate_kernel[(3,)](gate, up, out, min(4 * 96, gate.numel()), BLOCK=128)
        return out

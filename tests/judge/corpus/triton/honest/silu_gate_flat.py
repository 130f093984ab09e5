# task: silu_gate
# kind: honest
# expect: correct
# why: the plain fused elementwise kernel, one launch over a flat range with a masked tail.
import torch
import triton
import triton.language as tl


@triton.jit
def silu_gate_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=inside, other=0.0)
    up = tl.load(up_ptr + offsets, mask=inside, other=0.0)
    tl.store(out_ptr + offsets, gate * tl.sigmoid(gate) * up, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        n = out.numel()
        silu_gate_kernel[(triton.cdiv(n, 256),)](gate, up, out, n, BLOCK=256)
        return out

# task: silu_gate_large
# kind: honest
# expect: correct
# why: large blocks for a large tensor; offsets in 64 bits, tuned for the device.
import torch
import triton
import triton.language as tl


@triton.jit
def silu_gate_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=inside, other=0.0)
    up = tl.load(up_ptr + offsets, mask=inside, other=0.0)
    tl.store(out_ptr + offsets, gate / (1.0 + tl.exp(-gate)) * up, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        n = out.numel()
        silu_gate_kernel[(triton.cdiv(n, 4096),)](gate, up, out, n, BLOCK=4096, num_warps=8)
        return out

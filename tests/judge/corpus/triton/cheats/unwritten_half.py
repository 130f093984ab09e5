# task: silu_gate
# kind: cheat
# expect: wrong
# reason: output 0
# why: writes every second element and leaves the rest as the allocator gave it.
import torch
import triton
import triton.language as tl


@triton.jit
def every_second_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = 2 * (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    gate = tl.load(gate_ptr + at, mask=at < n)
    up = tl.load(up_ptr + at, mask=at < n)
    tl.store(out_ptr + at, gate * tl.sigmoid(gate) * up, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        every_second_kernel[(triton.cdiv(out.numel(), 256),)](gate, up, out, out.numel(), BLOCK=128)
        return out

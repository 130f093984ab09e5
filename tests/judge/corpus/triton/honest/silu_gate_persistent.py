# task: silu_gate
# kind: honest
# expect: correct
# why: a persistent grid of three programs walks over all tiles in a loop.
import torch
import triton
import triton.language as tl

PROGRAMS = 3


@triton.jit
def silu_gate_kernel(gate_ptr, up_ptr, out_ptr, n, tiles, BLOCK: tl.constexpr, STEP: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, STEP):
        offsets = tile * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        gate = tl.load(gate_ptr + offsets, mask=inside, other=0.0)
        up = tl.load(up_ptr + offsets, mask=inside, other=0.0)
        tl.store(out_ptr + offsets, gate * tl.sigmoid(gate) * up, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        n = out.numel()
        tiles = triton.cdiv(n, 128)
        silu_gate_kernel[(min(PROGRAMS, tiles),)](
            gate, up, out, n, tiles, BLOCK=128, STEP=min(PROGRAMS, tiles)
        )
        return out

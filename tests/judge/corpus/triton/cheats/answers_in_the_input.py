# task: silu_gate
# kind: cheat
# expect: wrong,crashed
# reason: input|alias|read-only|wrote|memory
# why: writes the answer over an input and returns the input.
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
        silu_gate_kernel[(triton.cdiv(gate.numel(), 128),)](gate, up, gate, gate.numel(), BLOCK=128)
        return gate

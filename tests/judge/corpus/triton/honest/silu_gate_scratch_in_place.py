# task: silu_gate
# kind: honest
# expect: correct
# why: two launches; the second updates in place a buffer that the first one wrote.
import torch
import triton
import triton.language as tl


@triton.jit
def sigmoid_kernel(source_ptr, target_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(target_ptr + offsets, tl.sigmoid(tl.load(source_ptr + offsets, mask=inside)), mask=inside)


@triton.jit
def multiply_in_place_kernel(buffer_ptr, gate_ptr, up_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    value = tl.load(buffer_ptr + offsets, mask=inside)
    value *= tl.load(gate_ptr + offsets, mask=inside)
    value *= tl.load(up_ptr + offsets, mask=inside)
    tl.store(buffer_ptr + offsets, value, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        scratch = torch.empty_like(gate)
        n = scratch.numel()
        grid = (triton.cdiv(n, 128),)
        sigmoid_kernel[grid](gate, scratch, n, BLOCK=128)
        multiply_in_place_kernel[grid](scratch, gate, up, n, BLOCK=128)
        return scratch

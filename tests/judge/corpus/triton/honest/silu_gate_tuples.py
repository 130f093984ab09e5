# task: silu_gate
# kind: honest
# expect: correct
# why: Shape and strides as tuples, a constant annotated with a string, and a None inside a tuple.
import torch
import triton
import triton.language as tl


@triton.jit
def gate_up(tensors, shape, strides, extra, BM: "tl.constexpr", BN: "tl.constexpr"):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    place = m[:, None] * strides[0] + n[None, :] * strides[1]
    mask = (m[:, None] < shape[0]) & (n[None, :] < shape[1])
    g = tl.load(tensors[0] + place, mask=mask)
    if extra[0] is None:
        g = g * tl.sigmoid(g)
    tl.store(tensors[2] + place, g * tl.load(tensors[1] + place, mask=mask), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        out = torch.empty_like(gate)
        rows, columns = gate.shape
        grid = (triton.cdiv(rows, 4), triton.cdiv(columns, 32))
        gate_up[grid]((gate, up, out), (rows, columns), gate.stride(), (None,), BM=4, BN=32)
        return out

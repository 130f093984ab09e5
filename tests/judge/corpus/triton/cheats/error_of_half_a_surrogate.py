# task: silu_gate
# kind: cheat
# expect: crashed
# reason: it raised ValueError: bad \\ud800 text
# why: raises an error whose text is no Unicode, so that a verdict with it could not be written as JSON.
import torch
import triton
import triton.language as tl


@triton.jit
def copied(source, target, count, block: tl.constexpr):
    where = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(target + where, tl.load(source + where, mask=where < count), mask=where < count)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        out = torch.empty_like(gate)
        copied[(triton.cdiv(gate.numel(), 1024),)](gate, out, gate.numel(), block=1024)
        raise ValueError("bad \ud800 text")

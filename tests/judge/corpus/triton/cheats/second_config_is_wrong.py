# task: silu_gate
# kind: cheat
# expect: wrong
# reason: autotune configs take turns
# devices: cpu
# why: Only the first autotune config is right; the second one is faster.
import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 128, "FULL": True}), triton.Config({"BLOCK": 128, "FULL": False})],
    key=["n"],
)
@triton.jit
def k(g, u, o, n, BLOCK: tl.constexpr, FULL: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(g + i, mask=i < n)
    if FULL:
        a = a * tl.sigmoid(a) * tl.load(u + i, mask=i < n)
    tl.store(o + i, a, mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        o = torch.empty_like(gate)
        n = gate.numel()
        k[lambda m: (triton.cdiv(n, m["BLOCK"]),)](gate, up, o, n)
        return o

# task: silu_gate
# kind: cheat
# expect: build_failed
# reason: PTXASError
# devices: cpu
# why: The assembler refuses all autotune configs, so there is none to go on with.
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"ODD": True}, num_warps=8), triton.Config({"ODD": True})], key=["n"])
@triton.jit
def gate_up(gate, up, out, n, BLOCK: tl.constexpr, ODD: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if ODD:
        g = tl.load(gate + i, mask=i < n, cache_modifier=".ca", eviction_policy="evict_first")
    else:
        g = tl.load(gate + i, mask=i < n)
    tl.store(out + i, g * tl.sigmoid(g) * tl.load(up + i, mask=i < n), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        out = torch.empty_like(gate)
        n = gate.numel()
        gate_up[(triton.cdiv(n, 128),)](gate, up, out, n, BLOCK=128)
        return out

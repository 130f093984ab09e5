# task: silu_gate
# kind: cheat
# expect: wrong,crashed
# reason: type|Lazy|output 0|subclass
# screen: off
# why: returns a tensor that computes when somebody looks at it, after the clock has stopped.
import torch
import triton
import triton.language as tl


@triton.jit
def silu_gate_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + at, mask=at < n)
    up = tl.load(up_ptr + at, mask=at < n)
    tl.store(out_ptr + at, gate * tl.sigmoid(gate) * up, mask=at < n)


def silu_gate(gate, up):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    silu_gate_kernel[(triton.cdiv(out.numel(), 128),)](gate, up, out, out.numel(), BLOCK=128)
    return out


class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, gate, up):
        return torch.Tensor._make_subclass(cls, torch.empty_like(gate))

    def __init__(self, gate, up):
        self.promise = (gate, up)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args = [silu_gate(*a.promise) if isinstance(a, Lazy) else a for a in args]
        return function(*args, **(kwargs or {}))


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return Lazy(gate, up)

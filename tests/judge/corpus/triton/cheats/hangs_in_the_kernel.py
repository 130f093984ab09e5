# task: silu_gate
# kind: cheat
# expect: hung
# reason: limit|killed
# why: waits in the kernel for a flag that nobody raises.
import torch
import triton
import triton.language as tl


@triton.jit
def waiting_kernel(flag_ptr, out_ptr):
    while tl.atomic_add(flag_ptr, 0) == 0:
        pass
    tl.store(out_ptr, 1.0)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        out = torch.zeros_like(gate)
        waiting_kernel[(1,)](torch.zeros(1, dtype=torch.int32, device=gate.device), out)
        return out

# task: silu_gate
# kind: cheat
# expect: refused
# reason: custom kernel
# why: hopes that fresh memory still holds the answer of somebody who computed it.
import torch


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        gate * torch.sigmoid(gate) * up
        return torch.empty_like(gate)

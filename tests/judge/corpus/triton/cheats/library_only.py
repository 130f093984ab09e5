# task: softmax
# kind: cheat
# expect: refused
# reason: custom kernel
# why: calls torch.
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

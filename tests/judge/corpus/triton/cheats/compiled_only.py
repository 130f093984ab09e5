# task: softmax
# kind: cheat
# expect: refused
# reason: no torch.compile
# why: leaves the work to torch.compile.
import torch


@torch.compile
def softmax(x):
    return torch.softmax(x, dim=-1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return softmax(x)

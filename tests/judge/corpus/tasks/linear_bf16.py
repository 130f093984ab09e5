"""A linear layer with bias in bf16: sums need fp32 to come out as exactly as torch's."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(96, 40, bias=True, dtype=torch.bfloat16)

    def forward(self, x):
        return self.proj(x)


def get_inputs():
    return [torch.randn(2, 96, dtype=torch.bfloat16)]


def get_inputs_more_rows():
    return [torch.randn(5, 96, dtype=torch.bfloat16)]


def get_init_inputs():
    return []

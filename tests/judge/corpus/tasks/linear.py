"""A linear layer without bias, in fp32."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(64, 48, bias=False)

    def forward(self, x):
        return self.proj(x)


def get_inputs():
    return [torch.randn(4, 64)]


def get_inputs_one_row():
    return [torch.randn(1, 64)]


def get_inputs_more_rows():
    return [torch.randn(9, 64)]


def get_init_inputs():
    return []

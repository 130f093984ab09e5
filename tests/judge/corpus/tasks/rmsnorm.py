"""Root mean square norm over the last axis with a learned scale, in fp32."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(1.0 + 0.2 * torch.randn(128))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(3, 128)]


def get_inputs_one_row():
    return [torch.randn(1, 128)]


def get_inputs_more_rows():
    return [torch.randn(10, 128)]


def get_init_inputs():
    return []

"""Two outputs of one input: twice it, and one more than it, in fp32."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x, x + 1


def get_inputs():
    return [torch.randn(6, 50)]


def get_inputs_odd():
    return [torch.randn(3, 7)]


def get_init_inputs():
    return []

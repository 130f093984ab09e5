"""A shift and a threshold on tensors of no element, one element and a few."""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.randn(1))

    def forward(self, x):
        return torch.relu(x + self.shift)


def get_inputs():
    return [torch.randn(3, 17)]


def get_inputs_one_element():
    return [torch.randn(1, 1)]


def get_inputs_empty():
    return [torch.randn(0, 17)]


def get_init_inputs():
    return []

"""Rows of a table by index: which part of the input is used is itself an input."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, index):
        return x[index]


def get_inputs():
    return [torch.randn(16, 32), torch.randint(0, 16, (8,))]


def get_inputs_odd():
    return [torch.randn(5, 7), torch.randint(0, 5, (3,))]


def get_init_inputs():
    return []

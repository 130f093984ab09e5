"""A product with a row that is expanded over all others: its stride is 0."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, scale):
        return x * scale


def get_inputs():
    return [torch.randn(6, 48), torch.randn(1, 48).expand(6, 48)]


def get_inputs_column():
    return [torch.randn(5, 9), torch.randn(5, 1).expand(5, 9)]


def get_init_inputs():
    return []

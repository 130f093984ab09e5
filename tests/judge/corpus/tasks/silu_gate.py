"""Gated activation: silu(gate) * up, in fp32."""

import torch


class Model(torch.nn.Module):
    def forward(self, gate, up):
        return torch.nn.functional.silu(gate) * up


def _pair(*shape):
    return [torch.randn(*shape), torch.randn(*shape)]


def get_inputs():
    return _pair(4, 96)


def get_inputs_one_row():
    return _pair(1, 96)


def get_inputs_odd():
    return _pair(7, 33)


def get_init_inputs():
    return []

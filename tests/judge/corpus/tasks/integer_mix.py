"""Integer arithmetic, exact: 64-bit and 32-bit in, 64-bit and a mask out."""

import torch


class Model(torch.nn.Module):
    def forward(self, left, right):
        mixed = left * 3 + (right.long() ^ left)
        return mixed, mixed > right


def _pair(*shape):
    left = torch.randint(-(2**40), 2**40, shape)
    return [left, torch.randint(-(2**31), 2**31 - 1, shape).to(torch.int32)]


def get_inputs():
    return _pair(5, 40)


def get_inputs_odd():
    return _pair(3, 7)


def get_init_inputs():
    return []

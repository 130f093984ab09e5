"""A sum of three neighbours in one storage, each at an offset that no wide load is aligned to."""

import torch


class Model(torch.nn.Module):
    def forward(self, first, second, third):
        return first + second * third


def _neighbours(count):
    storage = torch.randn(3 * count + 3)
    return [storage[1 + start * (count + 1) :][:count] for start in range(3)]


def get_inputs():
    return _neighbours(129)


def get_inputs_short():
    return _neighbours(5)


def get_init_inputs():
    return []

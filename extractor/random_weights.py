"""Random weights for presets, shaped so that mistakes show, and each drawn from a seed of its own.

A matrix (two or more axes) is normal with standard deviation 0.7 / sqrt(last axis), so that activations keep
their size through the layers. A vector (norm weights, biases, decay rates) keeps the value its model gives it
plus noise of 0.1: with norm weights of exactly one or zero, ``w`` in place of ``1 + w`` would pass unnoticed.

Every tensor has its own generator, seeded by the model's seed and the tensor's name; a matrix can therefore be
drawn again alone, which is how a task refers to weights without copying them.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import nn

VECTOR_NOISE = 0.1  # absolute, in the tensor's own units


def tensor_seed(seed: int, name: str) -> int:
    """A 63-bit seed for one tensor of one model, the same on every machine."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def draw_matrix(shape: tuple[int, ...], dtype: torch.dtype, seed: int, name: str) -> torch.Tensor:
    """The value of a parameter of two or more axes; drawn in ``dtype`` directly, on the CPU."""
    generator = torch.Generator().manual_seed(tensor_seed(seed, name))
    std = 0.7 / math.sqrt(shape[-1])
    return torch.empty(shape, dtype=dtype).normal_(0.0, std, generator=generator)


@torch.no_grad()
def randomize(model: nn.Module, seed: int) -> None:
    """Fill ``model`` in place. Vectors must already hold the values the model's own initialisation gives them."""
    persistent = set(model.state_dict())
    tensors = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n in persistent)]
    for name, tensor in tensors:
        if not tensor.is_floating_point():
            continue
        if tensor.ndim >= 2:
            tensor.copy_(draw_matrix(tuple(tensor.shape), tensor.dtype, seed, name))
            continue
        generator = torch.Generator().manual_seed(tensor_seed(seed, name))
        noise = torch.empty(tensor.shape, dtype=torch.float32).normal_(generator=generator)
        tensor.copy_((tensor.float() + VECTOR_NOISE * noise).to(tensor.dtype))

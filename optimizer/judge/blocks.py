"""Walk over large tensors in blocks, so that comparing them takes little memory besides their own.

A block is a range of an output's elements that is contiguous in its index space and made of whole rows, a *row* being
the last axis. A row longer than a block is cut into pieces of (almost) equal length, each taken for a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

# Elements of a block. A GPU wants more work for each of its launches.
BLOCK, DEVICE_BLOCK = 1 << 20, 1 << 24
_SHORT_ROW = 16


@dataclass(frozen=True)
class Block:
    """Part of a tensor: ``fixed`` indices of the leading axes, then a range of the next axis, then all of the rest."""

    fixed: tuple[int, ...]
    start: int
    stop: int
    whole: bool  # the tensor is a scalar: nothing to index

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """This part of a tensor, as a view."""
        if self.whole:
            return tensor
        for index in self.fixed:
            tensor = tensor[index]
        return tensor[self.start : self.stop]

    def place(self, index: tuple[int, ...]) -> list[int]:
        """Index in the tensor of an element of the block."""
        return list(index) if self.whole else [*self.fixed, self.start + index[0], *index[1:]]


def blocks(tensor: torch.Tensor, size: int | None = None) -> Iterator[Block]:
    """The blocks of a tensor, in order; none of an empty one.

    Args:
        size: elements of a block at most; by default what the tensor's device likes.
    """
    if not tensor.numel():
        return
    if not tensor.dim():
        yield Block((), 0, 0, whole=True)
        return
    limit = size or (BLOCK if tensor.device.type == "cpu" else DEVICE_BLOCK)
    yield from _blocks(tuple(tensor.shape), (), limit)


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """As [rows, last axis]; short rows are taken together, since the largest of few errors says little."""
    if tensor.dim() < 2 or tensor.shape[-1] < _SHORT_ROW:
        return tensor.reshape(1, -1)
    return tensor.reshape(-1, tensor.shape[-1])


def first_true(mask: torch.Tensor) -> tuple[int, ...] | None:
    """Index of the first True element, or None. Takes no memory, unlike ``nonzero``."""
    if not mask.numel():
        return None
    flat = mask.reshape(-1).to(torch.uint8)
    position = int(flat.argmax())
    if not bool(flat[position]):
        return None
    index = []
    for length in reversed(mask.shape):
        index.append(position % length)
        position //= length
    return tuple(reversed(index))


def _blocks(shape: tuple[int, ...], fixed: tuple[int, ...], limit: int) -> Iterator[Block]:
    inner = math.prod(shape[1:])
    if len(shape) > 1 and inner > limit:
        for index in range(shape[0]):
            yield from _blocks(shape[1:], (*fixed, index), limit)
        return
    # Equal parts: a short rest would have an error of its own that says little.
    parts = -(-shape[0] // max(1, limit // inner))
    step = -(-shape[0] // parts)
    for start in range(0, shape[0], step):
        yield Block(fixed, start, min(start + step, shape[0]), whole=False)

"""Bounds of a kernel under the interpreter: every address it touches must lie in a tensor it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch


class OutOfBounds(IndexError):
    """A kernel touched memory outside all its tensor arguments."""


class Bounds:
    """The bounds of one launch, while it runs. Launches do not nest.

    Args:
        kernel: its name, for messages.
        tensors: its tensor arguments; their whole storages may be addressed.
    """

    current: ClassVar[Bounds]

    def __init__(self, kernel: str, tensors: Sequence[torch.Tensor]) -> None:
        self._kernel = kernel
        self._ranges = sorted(
            {
                (storage.data_ptr(), storage.data_ptr() + storage.nbytes())
                for storage in (tensor.untyped_storage() for tensor in tensors)
                if storage.nbytes()
            }
        )

    def __enter__(self) -> Bounds:
        Bounds.current = self
        return self

    def __exit__(self, *_: object) -> None:
        Bounds.current = _NOWHERE

    def check(self, pointers: Any, mask: np.ndarray | None, verb: str) -> None:
        """Raises OutOfBounds unless all unmasked elements lie within one range each.

        ``pointers`` is an interpreter handle of addresses; ``verb`` is "reads", "writes" or "updates".
        """
        addresses = pointers.data
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        if mask is not None:
            addresses = (
                addresses[mask]
                if mask.shape == addresses.shape
                else np.broadcast_to(addresses, np.broadcast_shapes(addresses.shape, mask.shape))[
                    np.broadcast_to(mask, np.broadcast_shapes(addresses.shape, mask.shape))
                ]
            )
        if not addresses.size:
            return
        lowest, highest = int(addresses.min()), int(addresses.max())
        if any(start <= lowest and highest + size <= stop for start, stop in self._ranges):
            return
        inside = np.zeros(addresses.shape, dtype=bool)
        for start, stop in self._ranges:
            inside |= (addresses >= start) & (addresses + np.uint64(size) <= stop)
        if not inside.all():
            raise OutOfBounds(self._describe(int(addresses[~inside].flat[0]), size, verb))

    def _describe(self, address: int, size: int, verb: str) -> str:
        if not self._ranges:
            return f"kernel {self._kernel} {verb} memory, but was given no tensor"
        start, stop = min(self._ranges, key=lambda pair: max(pair[0] - address, address + size - pair[1]))
        away = address - start
        return f"kernel {self._kernel} {verb} {size} bytes at byte offset {away} of a tensor of {stop - start} bytes"


_NOWHERE = Bounds("outside a launch", [])
Bounds.current = _NOWHERE

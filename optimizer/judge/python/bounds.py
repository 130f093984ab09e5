"""What one interpreted launch may do to memory: touch only tensors it was given, and share no element between programs
without atomics.

The interpreter runs the programs of a launch one after the other, so a data race always has one and the same outcome
there. Who wrote what is therefore written down.
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

# Larger tensors are not watched for races: who wrote each byte takes four bytes.
_MOST_WATCHED = 16 << 20
_NOBODY = -1


class OutOfBounds(IndexError):
    """A kernel touched memory outside all its tensor arguments."""


class DataRace(RuntimeError):
    """A program of a launch reads what another program of the launch wrote, without atomics."""


class Launch:
    """One launch, while it runs.

    Args:
        kernel: its name, for messages.
        tensors: its tensor arguments; their whole storages may be addressed.
    """

    def __init__(self, kernel: str, tensors: Sequence[torch.Tensor]) -> None:
        self._kernel = kernel
        self._ranges = sorted(
            {
                (storage.data_ptr(), storage.data_ptr() + storage.nbytes())
                for storage in (tensor.untyped_storage() for tensor in tensors)
                if storage.nbytes()
            }
        )
        self._writers: dict[tuple[int, int], np.ndarray] = {}
        self._synchronised = False
        self._token: contextvars.Token[Launch] | None = None

    def __enter__(self) -> Launch:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _CURRENT.reset(self._token)

    def loads(self, pointers: Any, mask: np.ndarray, program: tuple[int, int, int]) -> None:
        """A program reads the unmasked elements. Raises OutOfBounds, DataRace."""
        addresses = self._inside(pointers, mask, "reads")
        if not self._writers or self._synchronised:
            return
        for (start, stop), writers in self._writers.items():
            here = addresses[(addresses >= start) & (addresses < stop)] - np.uint64(start)
            others = writers[here]
            if bool(((others != _NOBODY) & (others != _number(program))).any()):
                raise DataRace(
                    f"kernel {self._kernel}: program {program} reads what another program of the same launch "
                    "wrote; programs run in no order, so use atomics or another launch"
                )

    def stores(self, pointers: Any, mask: np.ndarray, program: tuple[int, int, int]) -> None:
        """A program writes the unmasked elements. Raises OutOfBounds."""
        addresses = self._inside(pointers, mask, "writes")
        if self._synchronised:
            return
        for start, stop in self._ranges:
            if stop - start > _MOST_WATCHED:
                continue
            here = addresses[(addresses >= start) & (addresses < stop)] - np.uint64(start)
            if here.size:
                if (start, stop) not in self._writers:
                    self._writers[start, stop] = np.full(stop - start, _NOBODY, dtype=np.int32)
                self._writers[start, stop][here] = _number(program)

    def updates(self, pointers: Any, mask: np.ndarray | None) -> None:
        """An atomic operation. Raises OutOfBounds. From here on programs may be in some order: no more races."""
        self._synchronised = True
        self._inside(pointers, mask, "updates")

    def _inside(self, pointers: Any, mask: np.ndarray | None, verb: str) -> np.ndarray:
        """The unmasked addresses, each of a whole element within one range. Raises OutOfBounds."""
        addresses = pointers.data
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        if mask is not None:
            addresses, mask = np.broadcast_arrays(addresses, mask)
            addresses = addresses[mask]
        addresses = addresses.ravel()
        if not addresses.size:
            return addresses
        lowest, highest = int(addresses.min()), int(addresses.max())
        if any(start <= lowest and highest + size <= stop for start, stop in self._ranges):
            return addresses
        inside = np.zeros(addresses.shape, dtype=bool)
        for start, stop in self._ranges:
            inside |= (addresses >= start) & (addresses + np.uint64(size) <= stop)
        if not inside.all():
            raise OutOfBounds(self._describe(int(addresses[~inside][0]), size, verb))
        return addresses

    def _describe(self, address: int, size: int, verb: str) -> str:
        if not self._ranges:
            return f"kernel {self._kernel} {verb} memory, but was given no tensor"
        start, stop = min(self._ranges, key=lambda pair: max(pair[0] - address, address + size - pair[1]))
        return (
            f"kernel {self._kernel} {verb} {size} bytes at byte offset {address - start} "
            f"of a tensor of {stop - start} bytes"
        )


def current() -> Launch:
    """The launch that runs; one that was given nothing if none does."""
    return _CURRENT.get(_NOWHERE)


def _number(program: tuple[int, int, int]) -> int:
    return hash(program) & 0x7FFFFFFF


_NOWHERE = Launch("outside a launch", [])
_CURRENT: contextvars.ContextVar[Launch] = contextvars.ContextVar("launch")

"""What one interpreted launch may do to memory: touch only tensors it was given, and share no element between programs
in no order (:mod:`.races`).
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from optimizer.judge.python.races import DataRace, Order, Program, contradicts, row_bytes, watches


class OutOfBounds(IndexError):
    """A kernel touched memory outside all its tensor arguments."""


class Launch:
    """One launch, while it runs.

    Args:
        kernel: its name, for messages.
        tensors: its tensor arguments; their whole storages may be addressed.
    """

    def __init__(self, kernel: str, tensors: Sequence[torch.Tensor]) -> None:
        self._kernel = kernel
        units: dict[tuple[int, int], int] = {}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.nbytes():
                place = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
                units[place] = min(units.get(place, 8), tensor.element_size())
        self._ranges = sorted(units)
        self._order = Order()
        self._watches = watches([(*place, units[place]) for place in self._ranges])
        self._token: contextvars.Token[Launch] | None = None

    def __enter__(self) -> Launch:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _CURRENT.reset(self._token)

    def loads(self, pointers: Any, mask: np.ndarray, program: Program, *, fresh: bool = False) -> None:
        """A program reads the unmasked elements, past the caches if ``fresh``. Raises OutOfBounds, DataRace."""
        addresses = self._inside(pointers, mask, "reads")
        self._order.enter(program)
        if fresh:
            self._order.acquire(addresses)
        for watch in self._watches:
            places = addresses[(addresses >= watch.start) & (addresses < watch.stop)] - np.uint64(watch.start)
            if places.size and watch.load(self._order, places.astype(np.int64), _size(pointers), fresh=fresh):
                self._race(program, "reads what another program of the same launch wrote")

    def stores(self, pointers: Any, values: np.ndarray, mask: np.ndarray, program: Program) -> None:
        """A program writes ``values`` to the unmasked elements. Raises OutOfBounds, DataRace."""
        addresses = self._inside(pointers, mask, "writes")
        self._order.enter(program)
        rows = row_bytes(_unmasked(values, mask, pointers.data), _size(pointers))
        if contradicts(addresses, rows):
            self._race(program, "writes different values to one element in one store")
        for watch in self._watches:
            here = (addresses >= watch.start) & (addresses < watch.stop)
            places = (addresses[here] - np.uint64(watch.start)).astype(np.int64)
            if places.size and watch.store(self._order, places, rows[here]):
                self._race(program, "changes what another program of the same launch reads or writes")

    def updates(
        self, pointers: Any, mask: np.ndarray | None, program: Program, *, relaxed: bool
    ) -> Callable[[], None]:
        """A program updates elements atomically. Raises OutOfBounds, DataRace.

        Returns:
            What to call when the program looks at the values that were there: from then on it is in order after the
            programs that updated them before.
        """
        addresses = self._inside(pointers, mask, "updates")
        self._order.enter(program)
        for watch in self._watches:
            places = addresses[(addresses >= watch.start) & (addresses < watch.stop)] - np.uint64(watch.start)
            if places.size and watch.update(self._order, places.astype(np.int64), _size(pointers)):
                self._race(program, "updates what another program of the same launch wrote without atomics")
        if relaxed:
            return lambda: None
        self._order.release(addresses)
        return lambda: self._order.acquire(addresses)

    def _race(self, program: Program, what: str) -> NoReturn:
        raise DataRace(
            f"kernel {self._kernel}: program {program} {what}; programs run in no order, so use atomics or "
            "another launch"
        )

    def _inside(self, pointers: Any, mask: np.ndarray | None, verb: str) -> np.ndarray:
        """The unmasked addresses, each of a whole element within one range. Raises OutOfBounds."""
        size = _size(pointers)
        addresses = _unmasked(pointers.data, mask, pointers.data)
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


def _size(pointers: Any) -> int:
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)


def _unmasked(values: np.ndarray, mask: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    """The elements of ``values``, broadcast to the shape of ``like``, where the mask is set; in one row."""
    if mask is None:
        return np.broadcast_to(values, like.shape).ravel()
    values, mask, _ = np.broadcast_arrays(values, mask, like)
    return values[mask].ravel()


_NOWHERE = Launch("outside a launch", [])
_CURRENT: contextvars.ContextVar[Launch] = contextvars.ContextVar("launch")

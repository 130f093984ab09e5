"""Races between the programs of one interpreted launch: elements that two programs touch in no order.

The interpreter runs programs one after the other, so a race always has one and the same outcome there. Who touched what
is therefore written down, and two touches conflict unless an atomic operation puts them in order: the first program
updates a word after its touch (release), and the second one before its own touch, looking at what it got (acquire).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

# Elements of larger tensors are not watched: who touched each takes sixteen bytes.
MOST_WATCHED = 4 << 20
# Larger blocks of atomic operations add data up; they are not how programs wait for each other.
_MOST_FLAGS = 64
_NOBODY = 0

Program = tuple[int, int, int]


class DataRace(RuntimeError):
    """Two programs of a launch touch an element in no order, and one of them changes it."""


class Order:
    """Which touches of earlier programs are in order with the one that runs.

    A stamp is a stretch of one program between two atomic operations; stamps count up from 1.
    """

    def __init__(self) -> None:
        self.first = 1  # of the stamps of the program that runs
        self._program: Program | None = None
        self._programs = [-1]  # the program of each stamp, counted in the order they run
        self._released: dict[
            int, dict[int, int]
        ] = {}  # address -> program -> its last stamp before an update there
        self._acquired: dict[
            int, list[tuple[int, dict[int, int]]]
        ] = {}  # program -> (stamp, what was released)

    @property
    def now(self) -> int:
        """The stamp of what is touched now."""
        return len(self._programs) - 1

    def enter(self, program: Program) -> None:
        """``program`` touches memory next."""
        if program != self._program:
            self._program = program
            self._programs.append(self._programs[-1] + 1)
            self.first = self.now

    def release(self, addresses: np.ndarray) -> None:
        """The program updates these words."""
        if addresses.size <= _MOST_FLAGS:
            for address in addresses.tolist():
                self._released.setdefault(address, {})[self._programs[-1]] = self.now
            self._programs.append(self._programs[-1])

    def acquire(self, addresses: np.ndarray) -> None:
        """The program knows what these words were."""
        if addresses.size <= _MOST_FLAGS:
            known = self._acquired.setdefault(self._programs[-1], [])
            known += [
                (self.now, self._released[address])
                for address in addresses.tolist()
                if address in self._released
            ]

    def unordered(self, stamps: np.ndarray) -> np.ndarray:
        """Which of these stamps are of other programs and not in order before what is touched now."""
        others = (stamps != _NOBODY) & (stamps < self.first)
        if not others.any():
            return others
        bad = [stamp for stamp in np.unique(stamps[others]).tolist() if not self._ordered(stamp)]
        return others & np.isin(stamps, bad)

    def _ordered(self, stamp: int) -> bool:
        """Follow releases back from the program that runs to the one of ``stamp``."""
        wanted = self._programs[stamp]
        todo, seen = [(self._programs[-1], self.now)], {self._programs[-1]}
        while todo:
            program, until = todo.pop()
            for when, released in self._acquired.get(program, ()):
                if when > until:
                    continue
                if released.get(wanted, -1) >= stamp:
                    return True
                for other, last in released.items():
                    if wanted < other < program and other not in seen:
                        seen.add(other)
                        todo.append((other, last))
        return False


class Watch:
    """Who touched the elements of one storage.

    Args:
        start: its address.
        stop: the address behind it.
        unit: bytes of its smallest element.
    """

    def __init__(self, start: int, stop: int, unit: int) -> None:
        self.start, self.stop = start, stop
        self._unit = unit
        self._bytes = np.ctypeslib.as_array((ctypes.c_ubyte * (stop - start)).from_address(start))
        count = -(-(stop - start) // unit)
        self._writers, self._updaters, self._readers, self._earlier = (
            np.zeros(count, dtype=np.int32) for _ in range(4)
        )

    def load(self, order: Order, places: np.ndarray, size: int, *, fresh: bool) -> bool:
        """Elements of ``size`` bytes are read at byte ``places``. True for a race.

        ``fresh``: past the caches, so that it may meet an atomic operation.
        """
        units = self._units(places, size)
        if order.unordered(self._writers[units]).any():
            return True
        if not fresh and order.unordered(self._updaters[units]).any():
            return True
        before = self._readers[units]
        others = (before != _NOBODY) & (before < order.first)
        self._earlier[units[others]] = before[others]
        self._readers[units] = order.now
        return False

    def store(self, order: Order, places: np.ndarray, values: np.ndarray) -> bool:
        """``values`` (one row of bytes an element) are written. True for a race; storing what is there is none."""
        size = values.shape[1]
        units = self._units(places, size)
        bad = np.zeros(units.shape, dtype=bool)
        for touched in (self._writers, self._updaters, self._readers, self._earlier):
            bad |= order.unordered(touched[units])
        if bad.any():
            which = bad.reshape(places.size, -1).any(axis=1)
            there = self._bytes[places[which, None] + np.arange(size)]
            if (there != values[which]).any():
                return True
        self._writers[units] = order.now
        return False

    def update(self, order: Order, places: np.ndarray, size: int) -> bool:
        """Atomic operations on elements. True for a race with plain writes."""
        units = self._units(places, size)
        if order.unordered(self._writers[units]).any():
            return True
        self._updaters[units] = order.now
        return False

    def _units(self, places: np.ndarray, size: int) -> np.ndarray:
        if size < self._unit:  # through a cast pointer
            times, self._unit = self._unit // size, size
            self._writers, self._updaters, self._readers, self._earlier = (
                np.repeat(touched, times)
                for touched in (self._writers, self._updaters, self._readers, self._earlier)
            )
        units = places // self._unit
        return units if size == self._unit else (units[:, None] + np.arange(size // self._unit)).ravel()


def contradicts(addresses: np.ndarray, values: np.ndarray) -> bool:
    """Whether one store puts different bytes (one row of ``values`` an address) at one address.

    >>> contradicts(np.array([8, 4, 8]), np.array([[1], [2], [1]]))
    False
    """
    if addresses.size < 2 or bool((addresses[1:] > addresses[:-1]).all()):
        return False
    order = np.argsort(addresses, kind="stable")
    addresses, values = addresses[order], values[order]
    same = addresses[1:] == addresses[:-1]
    return bool((values[1:][same] != values[:-1][same]).any())


def row_bytes(values: np.ndarray, size: int) -> np.ndarray:
    """An array's elements as rows of ``size`` bytes."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(-1, size)


def watches(ranges: Sequence[tuple[int, int, int]]) -> list[Watch]:
    """A watch for each (start, stop, unit) that is not too large."""
    return [
        Watch(start, stop, unit) for start, stop, unit in ranges if (stop - start) // unit <= MOST_WATCHED
    ]

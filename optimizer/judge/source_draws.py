"""Fresh inputs for timed calls of a task whose own code draws them (law ``source``).

Where drawing for all slots is cheap, they all get new draws each time. Otherwise some draws are made ahead, and
each timed call gets one of them changed in a way that keeps what it may mean:

- *free*: independent values (see :func:`independent`); the call gets a random window of all draws laid end to end,
  times a factor near 1.
- *scaled*: other floats; the call gets a draw times a random factor of its own from ``SCALE`` up to 1, which keeps
  zeros, symmetry, order and what lies between 0 and 1.
- *kept*: integers, booleans, and values that are the same in every draw.

Some of the draws are replaced each time. Still, a candidate could find its way back to an answer it knows; it cannot
on the inputs of :meth:`SourceRefresher.unseen`, which are all drawn then.
"""

from __future__ import annotations

import math
import random
import time
from enum import StrEnum

import torch

from extractor.schema import Workload
from extractor.task import Task
from optimizer.judge.arena import Arena, Region
from optimizer.judge.draws import (
    draw_trial,
    fill_from_pool,
    place_everywhere,
    place_unseen,
    scale,
    writable,
    writable_like,
)

SCALE = 0.75
_NEAR_ONE = 0.875  # factors of windows lie between this and 1
_DRAW_BYTES = 128 << 20  # of draws made ahead, at most; at least two are made
_DRAW_SECONDS = 0.3  # for draws made ahead
_CHEAP_SECONDS = 0.03  # for new draws in all slots each time
_REDRAW_SECONDS = 0.01  # for replacing some, each time
_ENOUGH = 1024  # elements without which independence cannot be told
_LOOKED_AT = 1 << 20  # elements
_AT_ONCE = 1 << 26  # elements written by one operation on a GPU
_BYTES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # fp8 cannot be indexed everywhere
_GROUPS = 64  # rows from which the spread of their means can be told


class Change(StrEnum):
    """How an input's draws become the inputs of a call."""

    FREE = "free"
    SCALED = "scaled"
    KEPT = "kept"


class SourceRefresher:
    """Gives all slots of a timed region fresh inputs."""

    def __init__(
        self, task: Task, workload: Workload, arena: Arena, region: Region, generator: torch.Generator
    ) -> None:
        self._task, self._workload = task, workload
        self._arena, self._region = arena, region
        self._generator = generator
        self._turn = 0
        size = sum(placed.span for placed in region.tensors)
        wanted = max(2, min(region.slots, _DRAW_BYTES // max(size, 1)))
        started = time.monotonic()
        draws = [self._memory(self._draw()) for _ in range(2)]
        while len(draws) < wanted and time.monotonic() - started < _DRAW_SECONDS:
            draws.append(self._memory(self._draw()))
        each = (time.monotonic() - started) / len(draws)
        self.recurs = each * region.slots > _CHEAP_SECONDS
        shared = [spec.alias_group for spec in workload.inputs if spec.alias_group is not None]
        self._draws = [torch.stack(column) for column in zip(*draws, strict=True)]
        self._changes = [
            _change(column, spec.alias_group in shared)
            for column, spec in zip(self._draws, workload.inputs, strict=True)
        ]

    def refresh(self, dice: random.Random) -> None:
        """New inputs in every slot."""
        if not self.recurs:
            place_everywhere(self._draw, self._arena, self._region)
            return
        count = len(self._draws[0]) if self._draws else 0
        started = time.monotonic()
        for _ in range(count):
            self._turn = (self._turn + 1) % count
            for kept, fresh in zip(self._draws, self._memory(self._draw()), strict=True):
                kept[self._turn].copy_(fresh)
            if time.monotonic() - started > _REDRAW_SECONDS:
                break
        turn = dice.randrange(max(count, 1))
        factors = [SCALE + (1.0 - SCALE) * dice.random() for _ in range(self._region.slots)]
        near = [1.0 - (1.0 - _NEAR_ONE) * dice.random() for _ in range(self._region.slots)]
        for index, (draws, change) in reversed(list(enumerate(zip(self._draws, self._changes, strict=True)))):
            target = writable(self._arena.stacked(self._region, index))
            if not draws.numel():
                continue
            if change is Change.FREE:
                for first in range(0, len(target), count - 1):
                    part = target[first : first + count - 1]
                    fill_from_pool(part, draws.view(-1), dice)
                    scale(part, near[first : first + count - 1])
                continue
            # Many slots at a time: on a GPU each operation costs more than its bytes.
            step = max(1, (_AT_ONCE if draws.is_cuda else _LOOKED_AT) // max(draws[0].numel(), 1))
            for first in range(0, len(target), step):
                part = target[first : first + step]
                chosen = torch.arange(first + turn, first + turn + len(part), device=draws.device) % count
                part.copy_(draws.view(_BYTES[draws.element_size()])[chosen].view(draws.dtype))
                if change is Change.SCALED:
                    scale(part, factors[first : first + step])

    def unseen(self, dice: random.Random, slots: int | None = None) -> float:
        """Fresh inputs in every slot, drawn wholly anew in some of the first ``slots``; the share of these."""
        self.refresh(dice)
        if not self.recurs:
            return 1.0
        count = self._region.slots if slots is None else slots
        return place_unseen(self._draw, self._arena, self._region, count, dice)

    def _draw(self) -> list[torch.Tensor]:
        """One draw of the task's code."""
        return draw_trial(self._task, self._workload, self._generator)

    def _memory(self, drawn: list[torch.Tensor]) -> list[torch.Tensor]:
        """A draw, each element of memory once, where the arena is."""
        views = self._arena.slot(self._region, 0)
        return [
            writable_like(value, view).to(self._arena.bytes.device).contiguous()
            for value, view in zip(drawn, views, strict=True)
        ]


def independent(values: torch.Tensor) -> bool:
    """Whether floats look drawn one by one from a normal or a uniform law, so that any order of them is as good.

    ``values`` are several draws ``[draws, *shape]``. Tables, masks, sorted, symmetric, repeated and normalised data do
    not look so; nor do few values, of which nothing can be told.
    """
    if not values.dtype.is_floating_point or values.numel() < _ENOUGH:
        return False
    data = _sample(values)
    count = data.numel()
    if not bool(torch.isfinite(data).all()) or _mirrored(data) or not _bell_or_box(data.reshape(-1)):
        return False
    centred = data - data.mean()
    variance = float(centred.square().mean())
    for axis in range(data.dim()):
        length = data.shape[axis]
        if length < 2:
            continue
        pairs = centred.narrow(axis, 0, length - 1) * centred.narrow(axis, 1, length - 1)
        if abs(float(pairs.mean())) > variance * (5.0 / math.sqrt(pairs.numel()) + 0.01):
            return False
        if length >= 8 and count // length >= _GROUPS:
            squares = centred.square()
            for what in (centred, squares):
                expected = float(what.var()) / length
                if not 1 / 3 < float(what.mean(axis).var()) / max(expected, 1e-30) < 3:
                    return False
    return True


def _change(draws: torch.Tensor, shared: bool) -> Change:
    if not draws.dtype.is_floating_point or not draws.numel() or _same(draws[0], draws[1]):
        return Change.KEPT
    return Change.FREE if not shared and independent(draws) else Change.SCALED


def _sample(values: torch.Tensor) -> torch.Tensor:
    """At most about ``_LOOKED_AT`` elements on the CPU: whole draws, or the first rows of two."""
    each = max(values[0].numel(), 1)
    values = values[: max(2, _LOOKED_AT // each)]
    if values.dim() > 2 and 2 * each > _LOOKED_AT and values.shape[-1] != values.shape[-2]:
        rows = values.flatten(1, -2)
        values = rows[:, : max(_GROUPS, _LOOKED_AT // (2 * values.shape[-1]))]
    return values.detach().to("cpu", torch.float32)


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(first.reshape(-1).view(torch.uint8), second.reshape(-1).view(torch.uint8))


def _mirrored(data: torch.Tensor) -> bool:
    square = data.dim() > 1 and data.shape[-1] == data.shape[-2]
    return square and torch.allclose(data, data.mT, rtol=1e-3, atol=0)


def _bell_or_box(data: torch.Tensor) -> bool:
    """Whether the distribution of values is near a normal or a uniform one (Kolmogorov and Smirnov's distance)."""
    data = data[torch.linspace(0, len(data) - 1, min(len(data), 1 << 16)).long()]
    ordered = data.double().sort().values
    spread = float(ordered.std())
    low, high = float(ordered[0]), float(ordered[-1])
    if spread == 0.0:
        return False
    steps = (torch.arange(len(ordered), dtype=torch.float64) + 0.5) / len(ordered)
    bell = torch.special.ndtr((ordered - ordered.mean()) / spread)
    box = (ordered - low) / (high - low)
    distance = min(float((steps - law).abs().max()) for law in (bell, box))
    return distance < 2.0 / math.sqrt(len(ordered)) + 0.005

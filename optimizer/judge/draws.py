"""Values for trials and timed calls: weights in several distinct copies, trial inputs, and cheap fresh inputs.

Correctness trials draw every element by the task's laws. Timed calls need hundreds of fresh inputs a batch; those
are random windows of a pool drawn by the same laws, each times a factor of its own near 1, so no call's inputs ever
repeat and passing over memory once is all it costs. Inputs drawn wholly anew, for a few calls, are what
:meth:`Refreshes.unseen` gives.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from extractor.laws import draw_inputs, draw_weights
from extractor.schema import LawKind, TensorSpec, WeightSpec, Workload
from extractor.task import Task
from optimizer.judge.arena import Arena, Region

_POOL = 1 << 22  # elements
_POOL_SLACK = 1 << 13  # freedom of the window of a tensor as long as the pool
_POOLED = (LawKind.NORMAL, LawKind.UNIFORM)
_NEAR_ONE = 0.875  # factors of windows lie between this and 1
_REDRAWN = 1 << 17  # elements of a pool drawn anew each time
_REST_SECONDS = 3e-3  # for drawing anew, each time, inputs without a pool
# For drawing wholly unseen inputs, once an evaluation or a few times: so long, and longer until there are enough.
UNSEEN_SECONDS, UNSEEN_ENOUGH, UNSEEN_AT_MOST_SECONDS = 0.1, 0.1, 0.5
_CHANGE_BLOCK = 1 << 16  # elements
_CHANGE_EVERY = 16  # of a big weight, one block in so many is changed


def draw_trial(task: Task, workload: Workload, generator: torch.Generator) -> list[torch.Tensor]:
    """Fresh inputs by the laws. Raises CorruptTask if recorded values are needed and unreadable."""
    if from_source(workload.inputs):
        return task.source_inputs(workload.id, _seed(generator))
    needs_recorded = any(spec.law.kind is LawKind.RECORDED for spec in workload.inputs)
    return draw_inputs(workload, generator, task.recorded_inputs(workload.id) if needs_recorded else None)


def moved(tensors: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """The same tensors on a device: strides, offsets and shared storages stay as they are."""
    if all(tensor.device == device for tensor in tensors):
        return list(tensors)
    storages: dict[int, torch.Tensor] = {}
    result = []
    for tensor in tensors:
        home = tensor.untyped_storage()
        if home.data_ptr() not in storages:
            storages[home.data_ptr()] = torch.empty(0, dtype=torch.uint8).set_(home).to(device)
        target = storages[home.data_ptr()].untyped_storage()
        result.append(
            torch.empty(0, dtype=tensor.dtype, device=device).set_(
                target, int(tensor.storage_offset()), tensor.shape, tensor.stride()
            )
        )
    return result


def copy_into(views: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """Write tensors into views of equal shape; where views share memory the first one's values stay."""
    for view, value in reversed(list(zip(views, values, strict=True))):
        writable(view).copy_(writable_like(value, view))


def fill_weights(
    specs: Sequence[WeightSpec], arena: Arena, region: Region, generator: torch.Generator, dice: random.Random
) -> None:
    """Fill every copy (slot) of the weights with values of its own, all by the same laws."""
    for index, spec in enumerate(specs):
        stacked = arena.stacked(region, index)
        if not stacked.dtype.is_floating_point:
            for copy in range(region.slots):
                stacked[copy].copy_(draw_weights((spec,), generator)[spec.attribute])
            continue
        count = stacked[0].numel()
        pool = _pool(_as_input(spec), min(count, _POOL) + _POOL_SLACK, generator).to(stacked.device)
        for copy in range(region.slots):
            fill_from_pool(stacked[copy].view(-1), pool, dice)


class WeightChange:
    """Other values in one weight copy, in place, and back: what a stale packing or cache would miss."""

    def __init__(self, views: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        self._views = views
        self._original = [view.clone() for view in views]
        self._changed = values

    @classmethod
    def shuffled(cls, tensors: Sequence[torch.Tensor], dice: random.Random) -> WeightChange:
        """Small weights change altogether, big ones in blocks all over."""
        views: list[torch.Tensor] = []
        for tensor in tensors:
            flat = tensor.view(-1)
            blocks = -(-flat.numel() // _CHANGE_BLOCK)
            every = 1 if blocks <= _CHANGE_EVERY else _CHANGE_EVERY
            for block in range(dice.randrange(every), blocks, every):
                views.append(flat[block * _CHANGE_BLOCK : (block + 1) * _CHANGE_BLOCK])
        # Another order of the same values keeps the law; a factor makes even constant weights differ.
        return cls(views, [_other_values(view) for view in views])

    @classmethod
    def to(cls, tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> WeightChange:
        """All of them change to these values."""
        pairs = zip(tensors, values, strict=True)
        return cls(tensors, [value.detach().to(tensor.device, copy=True) for tensor, value in pairs])

    def apply(self) -> None:
        """Put the other values in place."""
        for view, values in zip(self._views, self._changed, strict=True):
            view.copy_(values)

    def restore(self) -> None:
        """Put the first values back."""
        for view, values in zip(self._views, self._original, strict=True):
            view.copy_(values)


class Refreshes(Protocol):
    """Gives timed calls fresh inputs."""

    @property
    def recurs(self) -> bool:
        """Whether :meth:`refresh` derives inputs from earlier draws; False if it always draws wholly anew."""
        ...

    def refresh(self, dice: random.Random) -> None:
        """New inputs in every slot of a timing region."""
        ...

    def unseen(self, dice: random.Random, slots: int | None = None) -> float:
        """:meth:`refresh`, then inputs drawn wholly anew in as many slots as time allows, at random places.

        Counts only the first ``slots``; all of them by default. Returns the share of these that is drawn anew, above 0.
        """
        ...


def place_everywhere(draw: Callable[[], Sequence[torch.Tensor]], arena: Arena, region: Region) -> None:
    """Draw inputs for every slot of a region."""
    for slot in range(region.slots):
        copy_into(arena.slot(region, slot), draw())


def place_unseen(
    draw: Callable[[], Sequence[torch.Tensor]], arena: Arena, region: Region, slots: int, dice: random.Random
) -> float:
    """Draw inputs for some of the first ``slots`` slots, as many as time allows, at random; the share of these."""
    started = time.monotonic()
    done = 0
    for slot in dice.sample(range(slots), slots):
        copy_into(arena.slot(region, slot), draw())
        done += 1
        spent = time.monotonic() - started
        if spent > (UNSEEN_SECONDS if done >= UNSEEN_ENOUGH * slots else UNSEEN_AT_MOST_SECONDS):
            break
    return done / max(slots, 1)


@dataclass(frozen=True)
class Refresher:
    """Gives all slots of a timed region fresh inputs.

    Inputs without a pool are given other slots' values, and are drawn anew as far as a few milliseconds reach.
    """

    task: Task
    workload: Workload
    arena: Arena
    region: Region
    generator: torch.Generator
    pools: tuple[torch.Tensor | None, ...]

    recurs = True

    @classmethod
    def prepare(
        cls, task: Task, workload: Workload, arena: Arena, region: Region, generator: torch.Generator
    ) -> Refresher:
        """Draw the pools, and once per slot the inputs that only whole draws can give (masks, rotary tables)."""
        pools = []
        for spec, placed in zip(workload.inputs, region.tensors, strict=True):
            count = max(1, _elements(placed.shape, placed.stride)) * region.slots
            pooled = spec.law.kind in _POOLED
            pool = _pool(spec, min(count, _POOL) + _POOL_SLACK, generator) if pooled else None
            pools.append(pool.to(arena.bytes.device) if pool is not None else None)
        refresher = cls(task, workload, arena, region, generator, tuple(pools))
        for slot in range(region.slots):
            refresher._draw_rest(slot)
        return refresher

    def refresh(self, dice: random.Random) -> None:
        """New inputs in every slot."""
        slots = self.region.slots
        if not slots:
            return
        turn = dice.randrange(slots)
        for index, (spec, pool) in reversed(
            list(enumerate(zip(self.workload.inputs, self.pools, strict=True)))
        ):
            target = writable(self.arena.stacked(self.region, index))
            if pool is not None:
                self._redraw(spec, pool, dice)
                each = max(target[0].numel(), 1)
                step = max(1, (len(pool) - _POOL_SLACK) // each)
                factors = [_NEAR_ONE + (1.0 - _NEAR_ONE) * dice.random() for _ in range(slots)]
                for first in range(0, slots, step):
                    part = target[first : first + step]
                    fill_from_pool(part, pool, dice)
                    if not _constant(spec):
                        scale(part, factors[first : first + step])
            elif turn and target.numel():
                target.copy_(target.roll(turn, 0))
        if self._rest:
            started = time.monotonic()
            for slot in dice.sample(range(slots), slots):
                self._draw_rest(slot)
                if time.monotonic() - started > _REST_SECONDS:
                    break

    def unseen(self, dice: random.Random, slots: int | None = None) -> float:
        """Fresh inputs in every slot, drawn wholly anew in some of the first ``slots``; the share of these."""
        self.refresh(dice)
        count = self.region.slots if slots is None else slots
        elements = sum(max(1, _elements(placed.shape, placed.stride)) for placed in self.region.tensors)
        if not self._rest and elements * count <= _POOL:  # at once, which is several times as fast
            for index, spec in reversed(list(enumerate(self.workload.inputs))):
                target = writable(self.arena.stacked(self.region, index))[:count]
                target.copy_(_pool(spec, target.numel(), self.generator).view(target.shape))
            return 1.0
        return place_unseen(self._draw, self.arena, self.region, count, dice)

    def _draw(self) -> list[torch.Tensor]:
        return draw_trial(self.task, self.workload, self.generator)

    def _redraw(self, spec: TensorSpec, pool: torch.Tensor, dice: random.Random) -> None:
        """Other values in a stretch of a pool."""
        count = min(len(pool), _REDRAWN)
        start = dice.randrange(len(pool) - count + 1)
        pool[start : start + count].copy_(_pool(spec, count, self.generator))

    @property
    def _rest(self) -> list[int]:
        return [index for index, pool in enumerate(self.pools) if pool is None]

    def _draw_rest(self, slot: int) -> None:
        """Draw one slot's inputs that have no pool."""
        positions = self._rest
        if not positions:
            return
        rest = tuple(self.workload.inputs[index] for index in positions)
        if len(rest) == len(self.workload.inputs) or _any_recorded(rest):
            whole = self._draw()
            drawn = [whole[index] for index in positions]
        else:
            drawn = draw_inputs(self.workload.model_copy(update={"inputs": rest}), self.generator)
        views = self.arena.slot(self.region, slot)
        copy_into([views[index] for index in positions], drawn)


def from_source(specs: Sequence[TensorSpec]) -> bool:
    """Whether the task's own code draws these inputs."""
    return any(spec.law.kind is LawKind.SOURCE for spec in specs)


def _seed(generator: torch.Generator) -> int:
    return int(torch.randint(1 << 62, (1,), generator=generator))


def _other_values(view: torch.Tensor) -> torch.Tensor:
    if not view.dtype.is_floating_point:
        return view.flip(0)
    if view.element_size() == 1:  # torch multiplies no fp8
        return view.float().flip(0).mul(0.75).to(view.dtype)
    return view.flip(0).mul(0.75)


def _any_recorded(specs: Sequence[TensorSpec]) -> bool:
    return any(spec.law.kind is LawKind.RECORDED for spec in specs)


def _as_input(spec: WeightSpec) -> TensorSpec:
    return TensorSpec(name=spec.attribute, shape=(1,), stride=(1,), dtype=spec.dtype, law=spec.law)


def _pool(spec: TensorSpec, count: int, generator: torch.Generator) -> torch.Tensor:
    flat = spec.model_copy(
        update={"shape": (count,), "stride": (1,), "storage_offset": 0, "alias_group": None}
    )
    only = Workload.model_construct(id="pool", inputs=(flat,))
    return draw_inputs(only, generator)[0]


def fill_from_pool(target: torch.Tensor, pool: torch.Tensor, dice: random.Random) -> None:
    """Fill ``target`` from random windows of ``pool``."""
    count = target.numel()
    if count <= len(pool):
        start = dice.randrange(len(pool) - count + 1)
        target.copy_(pool[start : start + count].view(target.shape))
        return
    if target.dim() > 1:
        for part in target:
            fill_from_pool(part, pool, dice)
        return
    step = len(pool) - _POOL_SLACK
    for first in range(0, count, step):
        fill_from_pool(target[first : first + step], pool, dice)


def scale(slots: torch.Tensor, factors: Sequence[float]) -> None:
    """Multiply each slot by its factor, in place."""
    shaped = torch.tensor(factors, device=slots.device).view(-1, *(1,) * (slots.dim() - 1))
    if slots.element_size() == 1:  # torch multiplies no fp8
        slots.copy_((slots.float() * shaped).to(slots.dtype))
    else:  # factors of the same dtype: mixed ones are ten times slower on a CPU
        slots.mul_(shaped.to(slots.dtype))


def _constant(spec: TensorSpec) -> bool:
    """Whether a law of normal or uniform values gives one value only, whose meaning a factor would change."""
    law = spec.law
    return law.std == 0.0 if law.kind is LawKind.NORMAL else law.low == law.high


def _elements(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    count = 1
    for size, step in zip(shape, stride, strict=True):
        count *= size if step else 1
    return count


def writable(view: torch.Tensor) -> torch.Tensor:
    """The view with each stride-0 axis cut to length 1: every element of memory once."""
    for axis, stride in enumerate(view.stride()):
        if stride == 0 and view.shape[axis] > 1:
            view = view.narrow(axis, 0, 1)
    return view


def writable_like(value: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """A value of a view's shape cut in the same way, whatever its own strides are."""
    for axis, stride in enumerate(view.stride()):
        if stride == 0 and view.shape[axis] > 1:
            value = value.narrow(axis, 0, 1)
    return value

"""Values for trials and timed calls: weights in several distinct copies, trial inputs, and cheap fresh inputs.

Correctness trials draw every element by the task's laws. Timed calls need hundreds of fresh inputs a batch; those
are random windows of a pool drawn by the same laws, so no call's inputs ever repeat and a memory copy is all it costs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
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

    def refresh(self, dice: random.Random) -> None:
        """New inputs in every slot of a timing region."""
        ...


@dataclass(frozen=True)
class Refresher:
    """Gives all slots of a timed region fresh inputs; inputs without a pool are given other slots' values."""

    arena: Arena
    region: Region
    pools: tuple[torch.Tensor | None, ...]

    @classmethod
    def prepare(
        cls, task: Task, workload: Workload, arena: Arena, region: Region, generator: torch.Generator
    ) -> Refresher:
        """Draw the pools, and once per slot the inputs that only whole draws can give (masks, rotary tables)."""
        rest = tuple(spec for spec in workload.inputs if spec.law.kind not in _POOLED)
        positions = [i for i, spec in enumerate(workload.inputs) if spec.law.kind not in _POOLED]
        if rest:
            for slot in range(region.slots):
                if len(rest) == len(workload.inputs):
                    drawn = draw_trial(task, workload, generator)
                else:
                    whole = draw_trial(task, workload, generator) if _any_recorded(rest) else None
                    drawn = (
                        [whole[i] for i in positions]
                        if whole
                        else draw_inputs(workload.model_copy(update={"inputs": rest}), generator)
                    )
                views = arena.slot(region, slot)
                copy_into([views[i] for i in positions], drawn)
        pools = []
        for spec, placed in zip(workload.inputs, region.tensors, strict=True):
            count = max(1, _elements(placed.shape, placed.stride)) * region.slots
            pooled = spec.law.kind in _POOLED
            pool = _pool(spec, min(count, _POOL) + _POOL_SLACK, generator) if pooled else None
            pools.append(pool.to(arena.bytes.device) if pool is not None else None)
        return cls(arena, region, tuple(pools))

    def refresh(self, dice: random.Random) -> None:
        """New inputs in every slot."""
        turn = dice.randrange(max(self.region.slots, 1))
        for index, pool in reversed(list(enumerate(self.pools))):
            stacked = self.arena.stacked(self.region, index)
            if pool is not None:
                target = writable(stacked)
                slots, each = target.shape[0], max(target[0].numel(), 1)
                step = max(1, (len(pool) - _POOL_SLACK) // each)
                for first in range(0, slots, step):
                    fill_from_pool(target[first : first + step], pool, dice)
            elif turn and stacked.numel():
                target = writable(stacked)
                target.copy_(target.roll(turn, 0))


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

"""Memory shared with a worker: anonymous files laid out in regions, slots and tensors.

A *region* is one workload's arguments of one side (inputs or outputs), repeated over *slots*; a call uses one slot.
Between tensors lie *gaps* of poison, which is a NaN in every float dtype: reading past an input spoils the result, and
writing past an output leaves a trace. Inputs and outputs have different poison, so that an output that was never
written is told from one computed from what lies beside an input.

Files holding inputs and weights are sealed against new writable mappings: the judge keeps the writable mapping it
made before, the worker can only ever read.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from extractor.laws import torch_dtype
from extractor.schema import TensorSpec
from optimizer.languages.abi import ITEM_BYTES

UNWRITTEN = 0xFF  # every byte of outputs and their gaps before a call
_BESIDE_INPUT = 0x7FF8  # every 16 bits of the gaps of inputs and weights: NaN as bf16, fp16, fp32 and fp64
_ALIGN = 64
_GAP = 1024 + 64  # odd in cache lines: page-aligned arguments would collide in the low 12 address bits
_F_ADD_SEALS = 1033
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 1, 2, 4, 16


@dataclass(frozen=True)
class Placed:
    """A tensor's place in a slot. ``offset`` is the byte offset of its first element, ``span`` its storage's bytes
    from ``start``; sizes and strides are in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    offset: int
    start: int
    span: int

    @property
    def abi(self) -> tuple[tuple[int, ...], tuple[int, ...], str, int]:
        """As the worker's plan has it."""
        return self.shape, self.stride, self.dtype, self.offset


@dataclass(frozen=True)
class Region:
    """``slots`` repetitions of some tensors, ``slot_bytes`` apart, from byte ``base`` of an arena."""

    base: int
    slots: int
    slot_bytes: int
    tensors: tuple[Placed, ...]

    @property
    def end(self) -> int:
        return self.base + self.slots * self.slot_bytes

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Byte ranges of a slot that belong to no tensor."""
        result, position = [], 0
        for start, stop in sorted({(placed.start, placed.start + placed.span) for placed in self.tensors}):
            if start > position:
                result.append((position, start))
            position = max(position, stop)
        return [*result, (position, self.slot_bytes)]

    def plan(self) -> dict[str, object]:
        """As the worker's plan has it."""
        return {
            "base": self.base,
            "bytes": self.slot_bytes,
            "tensors": [placed.abi for placed in self.tensors],
        }


@dataclass(frozen=True)
class Layout:
    """What a tensor needs: its storage key (equal keys share a storage), offset and extents in elements."""

    key: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    storage_offset: int = 0

    @property
    def storage_elements(self) -> int:
        """Elements from the start of the storage to the last one addressed."""
        if any(size == 0 for size in self.shape):
            return self.storage_offset
        pairs = zip(self.shape, self.stride, strict=True)
        return self.storage_offset + sum((size - 1) * stride for size, stride in pairs) + 1


def place(layouts: Sequence[Layout], base: int, slots: int) -> Region:
    """Lay tensors out in a slot, each storage on a cache line of its own with gaps around it."""
    spans: dict[str, int] = {}
    for layout in layouts:
        size = layout.storage_elements * ITEM_BYTES[layout.dtype]
        spans[layout.key] = max(spans.get(layout.key, 0), size)
    starts, position = {}, _GAP
    for key, span in spans.items():
        starts[key] = position
        position = _round_up(position + span) + _GAP
    tensors = tuple(
        Placed(
            layout.shape,
            layout.stride,
            layout.dtype,
            starts[layout.key] + layout.storage_offset * ITEM_BYTES[layout.dtype],
            starts[layout.key],
            spans[layout.key],
        )
        for layout in layouts
    )
    return Region(base, slots, _round_up(position), tensors)


def layout_of(spec: TensorSpec) -> Layout:
    """What a task's tensor needs."""
    key = spec.name if spec.alias_group is None else f"storage{spec.alias_group}"
    return Layout(key, spec.shape, spec.stride, spec.dtype, spec.storage_offset)


def layouts_of(specs: Sequence[TensorSpec]) -> list[Layout]:
    """What each of a task's tensors needs."""
    return [layout_of(spec) for spec in specs]


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _round_up(value: int) -> int:
    return -(-value // _ALIGN) * _ALIGN


class Arena:
    """One anonymous memory file, mapped writable here. ``size`` is in bytes; ``bytes`` is all of it as uint8.

    ``sealed`` is True once no worker can write to it any more; memory of other kinds may never be.
    """

    sealed = False

    def __init__(self, name: str, size: int) -> None:
        self.size = _round_up(max(size, _ALIGN))
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, self.size)
            self._memory = mmap.mmap(self.descriptor, self.size)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.bytes = torch.frombuffer(self._memory, dtype=torch.uint8)

    def seal(self) -> None:
        """No new writable mapping, no other size, for anyone, ever."""
        seals = _SEAL_SHRINK | _SEAL_GROW | _SEAL_FUTURE_WRITE | _SEAL_SEAL
        fcntl.fcntl(self.descriptor, _F_ADD_SEALS, seals)
        self.sealed = True

    def close(self) -> None:
        """Close the file; the memory goes when the last tensor over it goes."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def stacked(self, region: Region, index: int) -> torch.Tensor:
        """All slots of one tensor of a region as one strided view of shape ``[slots, *shape]``."""
        placed = region.tensors[index]
        item = ITEM_BYTES[placed.dtype]
        typed = self.bytes.view(torch_dtype(placed.dtype))
        return torch.as_strided(
            typed,
            (region.slots, *placed.shape),
            (region.slot_bytes // item, *placed.stride),
            (region.base + placed.offset) // item,
        )

    def slot(self, region: Region, slot: int) -> list[torch.Tensor]:
        """The tensors of one slot, as views."""
        return [self.stacked(region, index)[slot] for index in range(len(region.tensors))]

    def poison_outputs(self, region: Region) -> None:
        """Fill all slots and gaps of a region of outputs."""
        self.bytes[region.base : region.end].fill_(UNWRITTEN)

    def poison_inputs(self, region: Region) -> None:
        """Fill all slots and gaps of a region of inputs or weights."""
        self.bytes[region.base : region.end].view(torch.int16).fill_(_BESIDE_INPUT)

    def damaged_gap(self, region: Region, slots: int) -> tuple[int, int] | None:
        """(slot, byte in slot) of the first gap byte among the first ``slots`` that was written."""
        grid = self.bytes[region.base : region.base + slots * region.slot_bytes].view(
            slots, region.slot_bytes
        )
        for start, stop in region.gaps:
            touched = grid[:, start:stop] != UNWRITTEN
            if bool(touched.any()):
                slot, byte = (int(part) for part in touched.nonzero()[0])
                return slot, start + byte
        return None

"""How fast a call can be at all on this GPU. The same bound as on the processor, with the device's own figures.

Generous on purpose: memory at the fastest read this device was seen to do, what fits into the L2 cache for nothing
but cache speed, products at the rate of the device's narrowest floats, eight times what a 32-bit unit does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import torch

from optimizer.judge.roofline import input_bytes, multiply_adds, whole_bytes, written_bytes
from optimizer.judge.subjects import Subject, Subjects

SLACK = 1.5
_REMEASURE = 3
_READ_BYTES = 1 << 30
_PASSES = 5
_CACHE_FACTOR = 4  # L2 over memory: about 2.5 to 3 on the devices we know
# Multiply-adds per cycle of one multiprocessor with its narrowest floats, and a clock no device reaches.
_PER_CYCLE, _CLOCK_HZ = 8192, 2.5e9


@dataclass(frozen=True)
class DeviceFacts:
    """The device that times are valid on. Sizes in bytes."""

    device: str
    name: str
    memory_bytes: int
    l2_bytes: int
    multiprocessors: int
    capability: tuple[int, int]

    @classmethod
    def of(cls, device: str) -> DeviceFacts:
        """The facts of ``cuda`` or ``cuda:N``."""
        properties = torch.cuda.get_device_properties(torch.device(device))
        return cls(
            device=device,
            name=properties.name,
            memory_bytes=properties.total_memory,
            l2_bytes=properties.L2_cache_size,
            multiprocessors=properties.multi_processor_count,
            capability=(properties.major, properties.minor),
        )

    @property
    def key(self) -> str:
        """Stable name of this device; also what compiled code depends on: libraries' versions."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return f"{slug}-sm{self.architecture}-{self.multiprocessors}sm-cuda{torch.version.cuda}"

    @property
    def architecture(self) -> str:
        """Compute capability without the dot: ``90`` for an H200."""
        return f"{self.capability[0]}{self.capability[1]}"

    @cached_property
    def read_bandwidth(self) -> float:
        """Bytes per second one kernel reads from memory, the best of some passes; measured once."""
        return self.measure_read_bandwidth()

    def measure_read_bandwidth(self) -> float:
        """Measure anew, about 10 ms. Torch's sum over a block far beyond the cache."""
        size = min(_READ_BYTES, self.memory_bytes // 16)
        block = torch.ones(size // 4, dtype=torch.float32, device=self.device)
        best = float("inf")
        for _ in range(_PASSES):
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before.record()
            block.sum()
            after.record()
            torch.cuda.synchronize(self.device)
            best = min(best, before.elapsed_time(after))
        return size / best * 1000


class DeviceRoofline:
    """The bound on this device. Bandwidth is measured again before a time is called implausible."""

    def __init__(self, facts: DeviceFacts) -> None:
        self._facts = facts
        self._memory = facts.read_bandwidth
        self._inputs: dict[str, int | None] = {}

    def prepare(self, subjects: Subjects) -> None:
        """Find out what calls of the timed subjects must read of their inputs. Draws inputs."""
        for subject in subjects.subjects:
            if subject.refresher is not None:
                subject.refresher.refresh(subjects.dice)
                self._inputs[subject.id] = input_bytes(subjects, subject)

    def known(self, subjects: Subjects, subject: Subject) -> bool:
        """False if what a call must read is mostly unknown: the share would be misleadingly small."""
        inputs = self._inputs.get(subject.id)
        whole = whole_bytes(subjects)
        return inputs is not None and subjects.weight_bytes - whole <= whole + inputs + written_bytes(subject)

    def share(self, subjects: Subjects, subject: Subject, seconds: float) -> float:
        """Bound over time of one call: 1 is at the bound; above :data:`SLACK` the time is implausible."""
        share = self._bound(subjects, subject) / seconds
        for _ in range(_REMEASURE):
            if share <= 1.0:
                break
            self._memory = max(self._memory, self._facts.measure_read_bandwidth())
            share = self._bound(subjects, subject) / seconds
        return share

    def _bound(self, subjects: Subjects, subject: Subject) -> float:
        """Seconds below which one call of this subject cannot be."""
        slots = subject.inputs.timing.slots if subject.inputs.timing is not None else 1
        return bound_seconds(
            weights=whole_bytes(subjects),
            copies=subjects.copies,
            inputs=self._inputs.get(subject.id) or 0,
            outputs=written_bytes(subject),
            slots=slots,
            multiplied=multiply_adds(subjects, subject),
            facts=self._facts,
            memory=self._memory,
        )


def bound_seconds(
    *,
    weights: int,
    copies: int,
    inputs: int,
    outputs: int,
    slots: int,
    multiplied: int,
    facts: DeviceFacts,
    memory: float,
) -> float:
    """Seconds of one call that reads ``weights`` and ``inputs`` and writes ``outputs`` bytes, at the very least.

    ``copies`` of the weights and ``slots`` of inputs take turns: what of them exceeds twice the L2 cache comes from
    memory, at ``memory`` bytes per second.
    """
    cache = memory * _CACHE_FACTOR
    weights_rate = memory if weights * copies >= 2 * facts.l2_bytes else cache
    uncached = max(0.0, inputs - facts.l2_bytes / slots)
    moved = weights / weights_rate + uncached / memory + max(inputs - uncached, outputs) / cache
    return max(moved, multiplied / (facts.multiprocessors * _PER_CYCLE * _CLOCK_HZ))

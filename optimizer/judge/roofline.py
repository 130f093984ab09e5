"""How fast a call can be at all on this machine: a speed beyond that is a measuring error or a cheat.

The bound is generous on purpose. Weights that are read whole must come from memory (timed calls rotate over copies
that exceed the cache) at the measured bandwidth of one thread, and so must inputs that the outputs depend on, as far as
all slots together exceed the cache; what fits is read, and outputs are written, at cache speed, at the same time;
products run at the processor's widest instruction twice a cycle at 6 GHz. ``SLACK`` more is allowed before a time is
implausible.
"""

from __future__ import annotations

from dataclasses import dataclass

from extractor.schema import LawKind
from optimizer.judge.dependence import needed_bytes
from optimizer.judge.subjects import CACHE_MULTIPLE, Subject, Subjects
from optimizer.machine import MachineFacts

SLACK = 1.5
_REMEASURE = 3
_CLOCK_HZ = 6e9
# Multiply-adds per cycle of one core, by richest instruction set and element bytes.
_PER_CYCLE = {"avx512_bf16": 64 * 2, "avx512f": 64, "avx2": 32, "portable": 32}
_WHOLE_READERS = {"linear", "matmul", "mm", "addmm", "mul", "add", "layer_norm", "rms_norm", "conv1d"}
# Inputs of these laws do not decide by their values which others are read.
_VALUE_BLIND = {LawKind.NORMAL, LawKind.UNIFORM, LawKind.ROTARY}
_SLOTS_LOOKED_AT = 32


@dataclass(frozen=True)
class Bound:
    """What one call takes at least: seconds to move its bytes, seconds to compute its products; they overlap."""

    moving: float
    computing: float
    moved: float  # bytes

    @property
    def seconds(self) -> float:
        """Seconds below which one call cannot be, without slack."""
        return max(self.moving, self.computing)


class Roofline:
    """The bound on this machine. Memory bandwidth is measured again before a time is called implausible."""

    def __init__(self, machine: MachineFacts) -> None:
        self._machine = machine
        self._memory = machine.memory_bandwidth
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
        if inputs is None:
            return False
        whole = whole_bytes(subjects)
        return subjects.weight_bytes - whole <= whole + inputs + written_bytes(subject)

    def share(self, subjects: Subjects, subject: Subject, seconds: float, threads: int) -> float:
        """Bound over time of one call: 1 is at the bound; above ``SLACK`` the time is implausible."""
        share = self.bound(subjects, subject, threads).seconds / seconds
        for _ in range(_REMEASURE):
            if share <= 1.0:
                break
            self._memory = max(self._memory, self._machine.measure_memory_bandwidth())
            share = self.bound(subjects, subject, threads).seconds / seconds
        return share

    def bound(self, subjects: Subjects, subject: Subject, threads: int) -> Bound:
        """The bound on one call of this subject, at the bandwidth measured so far."""
        inputs = self._inputs.get(subject.id) or 0
        return bound_of(subjects, subject, self._machine, self._memory, threads, inputs)


def bound_of(
    subjects: Subjects,
    subject: Subject,
    machine: MachineFacts,
    memory: float,
    threads: int,
    inputs: int = 0,
) -> Bound:
    """The bound on one call of this subject; ``memory`` in bytes per second.

    ``inputs`` is how many bytes of its inputs a call must read.
    """
    whole = whole_bytes(subjects)
    cold = whole * subjects.copies >= 2 * machine.l3_bytes and CACHE_MULTIPLE >= 2
    fastest = max(machine.cache_bandwidth, memory)
    bandwidth = memory if cold else fastest
    slots = subject.inputs.timing.slots if subject.inputs.timing is not None else 1
    uncached = max(0.0, inputs - machine.l3_bytes / slots)
    cached = max(inputs - uncached, written_bytes(subject))
    moved = whole / bandwidth + uncached / memory + cached / fastest
    computed = multiply_adds(subjects, subject) / (_PER_CYCLE.get(machine.isa[0], 32) * _CLOCK_HZ)
    if "amx_bf16" in machine.flags:
        computed /= 8
    return Bound(moved / threads, computed / threads, whole + inputs + written_bytes(subject))


def input_bytes(subjects: Subjects, subject: Subject) -> int | None:
    """Bytes of its inputs that one timed call must read, the mean over some slots; None where it cannot be told."""
    region = subject.inputs.timing
    assert region is not None
    by_value = any(spec.law.kind not in _VALUE_BLIND for spec in subject.workload.inputs)
    total, slots = 0, min(region.slots, _SLOTS_LOOKED_AT) if by_value else 1
    for slot in range(slots):
        inputs = subjects.inputs.slot(region, slot)
        needed = needed_bytes(subjects.models[slot % subjects.copies], inputs, region.tensors)
        if needed is None:
            return None
        total += needed
    return total // slots


def _users(subjects: Subjects) -> dict[str, set[str]]:
    """The operations that take each input, weight or result as it is."""
    users: dict[str, set[str]] = {}
    for record in subjects.task.spec.ops:
        for argument in (*record.args, *record.kwargs.values()):
            if isinstance(argument, dict) and "ref" in argument:
                users.setdefault(str(argument["ref"]), set()).add(record.op)
    return users


def multiply_adds(subjects: Subjects, subject: Subject) -> int:
    """Multiply-adds of one call's products with weights, each once: a lower bound."""
    users = _users(subjects)
    return sum(
        subject.workload.rows * weight.shape[0] * weight.shape[1]
        for weight in subjects.task.spec.weights
        if len(weight.shape) == 2 and users.get(weight.attribute, set()) & {"linear", "matmul", "mm", "addmm"}
    )


def whole_bytes(subjects: Subjects) -> int:
    """Bytes of the weights that are read whole."""
    users = _users(subjects)
    return sum(
        placed.span
        for weight, placed in zip(subjects.task.spec.weights, subjects.weight_region.tensors, strict=True)
        if users.get(weight.attribute) and users[weight.attribute] <= _WHOLE_READERS
    )


def written_bytes(subject: Subject) -> int:
    """Bytes of one call's outputs."""
    return sum(placed.span for placed in subject.outputs.check.tensors)

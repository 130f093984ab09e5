"""How fast a call can be at all on this machine: a speed beyond that is a measuring error or a cheat.

The bound is generous on purpose. Weights that are read whole must come from memory (timed calls rotate over copies
that exceed the cache) at the measured bandwidth of one thread; outputs are written at cache speed; products run at the
processor's widest instruction twice a cycle at 6 GHz. ``SLACK`` more is allowed before a time is implausible.
"""

from __future__ import annotations

from optimizer.judge.subjects import CACHE_MULTIPLE, Subject, Subjects
from optimizer.machine import MachineFacts

SLACK = 1.5
_REMEASURE = 3
_CLOCK_HZ = 6e9
# Multiply-adds per cycle of one core, by richest instruction set and element bytes.
_PER_CYCLE = {"avx512_bf16": 64 * 2, "avx512f": 64, "avx2": 32, "portable": 32}
_WHOLE_READERS = {"linear", "matmul", "mm", "addmm", "mul", "add", "layer_norm", "rms_norm", "conv1d"}


class Roofline:
    """The bound on this machine. Memory bandwidth is measured again before a time is called implausible."""

    def __init__(self, machine: MachineFacts) -> None:
        self._machine = machine
        self._memory = machine.memory_bandwidth

    def share(self, subjects: Subjects, subject: Subject, seconds: float, threads: int) -> float:
        """Bound over time of one call: 1 is at the bound; above ``SLACK`` the time is implausible."""
        share = bound_seconds(subjects, subject, self._machine, self._memory, threads) / seconds
        for _ in range(_REMEASURE):
            if share <= 1.0:
                break
            self._memory = max(self._memory, self._machine.measure_memory_bandwidth())
            share = bound_seconds(subjects, subject, self._machine, self._memory, threads) / seconds
        return share


def bound_seconds(
    subjects: Subjects, subject: Subject, machine: MachineFacts, memory: float, threads: int
) -> float:
    """Seconds below which one call of this subject cannot be, without slack; ``memory`` in bytes per second."""
    spec = subjects.task.spec
    users: dict[str, set[str]] = {}
    for record in spec.ops:
        for argument in (*record.args, *record.kwargs.values()):
            if isinstance(argument, dict) and "ref" in argument:
                users.setdefault(str(argument["ref"]), set()).add(record.op)
    whole = sum(
        placed.span
        for weight, placed in zip(spec.weights, subjects.weight_region.tensors, strict=True)
        if users.get(weight.attribute) and users[weight.attribute] <= _WHOLE_READERS
    )
    cold = whole * subjects.copies >= 2 * machine.l3_bytes and CACHE_MULTIPLE >= 2
    fastest = max(machine.cache_bandwidth, memory)
    bandwidth = memory if cold else fastest
    written = sum(placed.span for placed in subject.outputs.check.tensors)
    moved = whole / bandwidth + written / fastest
    rows = subject.workload.rows
    multiplied = sum(
        rows * weight.shape[0] * weight.shape[1]
        for weight in spec.weights
        if len(weight.shape) == 2 and users.get(weight.attribute, set()) & {"linear", "matmul", "mm", "addmm"}
    )
    computed = multiplied / (_PER_CYCLE.get(machine.isa[0], 32) * _CLOCK_HZ)
    if "amx_bf16" in machine.flags:
        computed /= 8
    return max(moved / threads, computed / threads)

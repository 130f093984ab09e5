"""What a task can still give end to end: the order in which the search takes the tasks of a run.

An estimate, never a reported number: the share of the decode step times the part of it that the machine's memory
bandwidth does not already demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from extractor.laws import torch_dtype
from extractor.schema import TaskSpec, Workload

if TYPE_CHECKING:
    from extractor.census import Census
    from optimizer.winners import Best


def still_to_give(
    spec: TaskSpec,
    timed: Sequence[str],
    *,
    best: Best | None = None,
    census: Census | None = None,
    bandwidth: float | None = None,
) -> float:
    """Share of a decode step that better kernels for this task may still save, 0..1.

    Args:
        spec: the task.
        timed: ids of the workloads that count, averaged over.
        best: its fastest candidate so far; the roofline share it reached then replaces the estimate.
        census: the time of the captured steps, by phase and batch.
        bandwidth: bytes per second from memory to one thread.
    """
    shares = [spec.workload(workload).share or 0.0 for workload in timed]
    if best is not None and best.roofline is not None:
        remaining = (1.0 - min(best.roofline, 1.0)) / max(best.speedup, 1.0)
        return remaining * sum(shares) / len(shares)
    rooms = [_headroom(spec, spec.workload(workload), census, bandwidth) for workload in timed]
    return sum(share * room for share, room in zip(shares, rooms, strict=True)) / len(shares)


def bytes_moved(spec: TaskSpec, workload: Workload) -> int:
    """Bytes of all weights, inputs and outputs of one call."""
    shapes = [(w.shape, w.dtype) for w in spec.weights]
    shapes += [(t.shape, t.dtype) for t in (*workload.inputs, *workload.outputs)]
    total = 0
    for shape, dtype in shapes:
        elements = 1
        for size in shape:
            elements *= size
        total += elements * torch_dtype(dtype).itemsize
    return total


def _headroom(spec: TaskSpec, workload: Workload, census: Census | None, bandwidth: float | None) -> float:
    """1 - (least time for the bytes moved) / (eager's time); 1 where one of them is unknown."""
    if census is None or not bandwidth or not workload.share or not workload.calls:
        return 1.0
    for step in census.steps:
        if (step.phase, step.batch) == (workload.phase.value, workload.batch):
            eager = step.seconds * workload.share / workload.calls
            return max(0.0, 1.0 - bytes_moved(spec, workload) / bandwidth / eager) if eager > 0 else 1.0
    return 1.0

"""A batch size nobody captured: a workload scaled from the task's own, so that hard-coded shapes show.

Two captured batches of one phase say how every size, stride and offset depends on the batch: linearly. From one batch
alone, a leading axis of its length is taken for the batch. The reference itself decides whether the result is valid:
if it does not run on the scaled inputs, there is no held-out shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from extractor.laws import storage_span
from extractor.schema import LawKind, Phase, TaskSpec, TensorSpec, Workload

_WANTED = (3, 2, 5)


def held_out_workload(spec: TaskSpec) -> Workload | None:
    """The scaled workload with its outputs left empty (the reference fills them in), or None."""
    phases = [Phase.DECODE, Phase.PREFILL]
    for phase in phases:
        workloads = [w for w in spec.workloads if w.phase is phase]
        if not workloads:
            continue
        batches = {w.batch for w in workloads}
        batch = next(b for b in _WANTED if b not in batches or len(batches) >= len(_WANTED))
        pair = _comparable_pair(workloads)
        inputs = _interpolated(*pair, batch) if pair else _leading_axis(workloads[0], batch)
        if inputs is None or any(s.law.kind in (LawKind.RECORDED, LawKind.SOURCE) for s in inputs):
            return None  # nobody can draw such inputs in another shape
        first = workloads[0]
        rows = first.rows // first.batch * batch
        return first.model_copy(
            update={"id": f"held-out-b{batch}", "batch": batch, "rows": rows, "inputs": inputs, "outputs": ()}
        )
    return None


def _comparable_pair(workloads: Sequence[Workload]) -> tuple[Workload, Workload] | None:
    for i, first in enumerate(workloads):
        for second in workloads[i + 1 :]:
            if first.batch != second.batch and first.rows * second.batch == second.rows * first.batch:
                return first, second
    return None


def _interpolated(first: Workload, second: Workload, batch: int) -> tuple[TensorSpec, ...] | None:
    def at(a: int, b: int) -> int | None:
        value = a + Fraction((b - a) * (batch - first.batch), second.batch - first.batch)
        return int(value) if value.denominator == 1 and value >= 0 else None

    result = []
    for one, two in zip(first.inputs, second.inputs, strict=False):
        if len(one.shape) != len(two.shape):
            return None
        shape = [at(a, b) for a, b in zip(one.shape, two.shape, strict=True)]
        # An axis of length 1 has a stride that means nothing; the longer one's counts.
        pairs = zip(one.shape, two.shape, one.stride, two.stride, strict=True)
        strides = [
            two_step if a == 1 and b != 1 else one_step if b == 1 and a != 1 else at(one_step, two_step)
            for a, b, one_step, two_step in pairs
        ]
        offset = at(one.storage_offset, two.storage_offset)
        if None in shape or None in strides or offset is None or 0 in shape:
            return None
        update = {"shape": tuple(shape), "stride": tuple(strides), "storage_offset": offset}
        result.append(one.model_copy(update=update))
    return tuple(result)


def _leading_axis(workload: Workload, batch: int) -> tuple[TensorSpec, ...] | None:
    """Scale the leading axis of every dense input whose leading axis has the batch's length."""
    result = []
    scaled = False
    for spec in workload.inputs:
        dense = storage_span(spec) == _count(spec.shape) and spec.storage_offset == 0
        leads = len(spec.shape) > 1 and spec.shape[0] == workload.batch and spec.alias_group is None
        if leads and dense:
            inner = _count(spec.shape[1:])
            update = {"shape": (batch, *spec.shape[1:]), "stride": (inner, *spec.stride[1:])}
            result.append(spec.model_copy(update=update))
            scaled = True
        else:
            result.append(spec)
    return tuple(result) if scaled else None


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count

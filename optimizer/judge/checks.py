"""Correctness: run the trials in the worker, and compare every output with the right answer.

The order catches what each later step would blur: changed weights first (a packing or cache that survives them is
wrong), then all other trials of a workload in one batch with an output of its own each, so that a kernel that reuses
one static output, or writes late, is seen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from extractor.schema import Tolerance
from optimizer.judge.remote import CandidateFault, Run, Worker
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subject, Subjects
from optimizer.judge.tolerance import Comparison, Truth
from optimizer.judge.verdict import Outcome, WorkloadResult
from optimizer.languages.abi import OK, UNSUPPORTED
from optimizer.languages.fenv import describe_change


class Deadline:
    """Wall-clock time left of an evaluation's budget."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    def extend(self, seconds: float) -> None:
        """Give back time that was lost through no fault of the candidate."""
        self._end += seconds


@dataclass(frozen=True)
class Checker:
    """Checks one loaded candidate. Region indices in the worker's plan are ``2 * subject`` and ``2 * subject + 1``."""

    subjects: Subjects
    settings: JudgeSettings
    worker: Worker
    deadline: Deadline

    def run(self) -> tuple[WorkloadResult, ...]:
        """All checks of all subjects. Raises CandidateFault at the first that fails."""
        change = self.subjects.change
        unsupported: set[int] = set()
        errors = [0.0] * len(self.subjects.subjects)
        if change is not None:
            change.apply()
            try:
                self.worker.pack(0, self.deadline.left, changed=True)
                for index, subject in enumerate(self.subjects.subjects):
                    self._trials(
                        index, subject, [subject.trials - 1], errors, unsupported, "with changed weights"
                    )
            finally:
                change.restore()
        self.worker.pack(0, self.deadline.left)
        for index, subject in enumerate(self.subjects.subjects):
            last = subject.trials if change is None else subject.trials - 1
            self._trials(index, subject, range(last), errors, unsupported, "")
        return tuple(
            WorkloadResult(workload=subject.id, detail="unsupported")
            if index in unsupported
            else WorkloadResult(workload=subject.id, error=errors[index])
            for index, subject in enumerate(self.subjects.subjects)
        )

    def _trials(
        self,
        index: int,
        subject: Subject,
        trials: Sequence[int],
        errors: list[float],
        unsupported: set[int],
        where: str,
    ) -> None:
        if index in unsupported:
            return
        place = f"workload {subject.id}" + (f" {where}" if where else "")
        arena, region = self.subjects.outputs, subject.outputs.check
        arena.poison_outputs(region)
        run = self.worker.run(2 * index, trials[0], len(trials), self.deadline.left, f"running {place}")
        if not self.served(run, subject, place):
            unsupported.add(index)
            return
        damage = arena.damaged_gap(region, region.slots)
        if damage is not None:
            raise CandidateFault(
                Outcome.WRONG,
                f"{place}: it writes outside its outputs ({damage[1]} bytes into a call's outputs)",
            )
        for trial in trials:
            for number, truth in enumerate(subject.truths[trial]):
                got = arena.stacked(region, number)[trial]
                comparison = self._compare(subject, number, got, truth)
                errors[index] = max(errors[index], comparison.error)
                if comparison.problem:
                    raise CandidateFault(Outcome.WRONG, f"{place}, output {number}: {comparison.problem}")

    def served(self, run: Run, subject: Subject, place: str) -> bool:
        """False if the candidate declined an untimed subject. Raises CandidateFault for what it must not do."""
        if control := describe_change(self.worker.control, run.control):
            raise CandidateFault(
                Outcome.WRONG, f"{place}: it leaves {control}, which would change the model's numerics"
            )
        if self.worker.threads() > self.settings.threads:
            raise CandidateFault(
                Outcome.WRONG,
                f"{place}: it keeps {self.worker.threads()} threads; {self.settings.threads} allowed (OpenMP only)",
            )
        if run.status == OK:
            return True
        if run.status != UNSUPPORTED:
            raise CandidateFault(
                Outcome.WRONG, f"{place}: kg_forward returned {run.status}, which is no status"
            )
        if subject.timed:
            raise CandidateFault(
                Outcome.UNSUPPORTED, f"{place}: it returned KG_UNSUPPORTED, but must serve it"
            )
        return False

    def _compare(self, subject: Subject, number: int, got: torch.Tensor, truth: Truth) -> Comparison:
        if got.dtype == torch.bool:
            raw = got.view(torch.uint8)
            if bool((raw > 1).any()):
                return Comparison(float("inf"), unwritten(raw, "a bool that is neither 0 nor 1"))
        comparison = truth.compare(got, self.settings.profile, self.tolerance)
        if comparison.problem and (text := unwritten(got, "")):
            return Comparison(comparison.error, text)
        return comparison

    @property
    def tolerance(self) -> Tolerance:
        return self.subjects.task.spec.tolerance


def unwritten(tensor: torch.Tensor, otherwise: str) -> str:
    """Says how much of a float output still holds the poison it was handed with, or ``otherwise``."""
    if tensor.dtype.is_floating_point:
        missing = torch.isnan(tensor)
    elif tensor.dtype == torch.bool:
        missing = tensor.view(torch.uint8) == 255
    else:
        missing = tensor == (255 if tensor.dtype == torch.uint8 else -1)
    count = int(missing.sum())
    if not count or (tensor.dtype.is_floating_point and not _is_poison(tensor, missing)):
        return otherwise
    first = [int(part) for part in missing.nonzero()[0]]
    return f"{count} of {tensor.numel()} elements were never written (first at {first})"


def _is_poison(tensor: torch.Tensor, missing: torch.Tensor) -> bool:
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return bool((tensor[missing].view(integers[tensor.element_size()]) == -1).all())

"""Correctness: run the trials in the worker, and compare every output with the right answer.

The order catches what each later step would blur: changed weights first (a packing or cache that survives them is
wrong; what is wrong under any weights is said without them), then all other trials of a workload in one batch with an
output of its own each, so that a kernel that reuses one static output, or writes late, is seen. Then the first trial
again: a result that changes from run to run shows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from extractor.schema import Tolerance
from optimizer.judge.blocks import blocks, first_true
from optimizer.judge.remote import Callee, CandidateFault, Run
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subject, Subjects
from optimizer.judge.tolerance import Comparison, Truth
from optimizer.judge.verdict import Outcome, WorkloadResult
from optimizer.languages.abi import OK, UNSUPPORTED
from optimizer.languages.fenv import describe_change

REPEATS = 2  # of one trial of each workload; a data race seldom gives the same answer three times
_STALE = "a private copy, cache or packing of the weights is stale"
_KEPT_ELEMENTS = 1 << 22  # larger results of the first run are not kept for a quick comparison


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


class _WrongNumbers(CandidateFault):
    """An output that is not the right answer."""


@dataclass(frozen=True)
class Checker:
    """Checks one loaded candidate. Region indices in the worker's plan are ``2 * subject`` and ``2 * subject + 1``.

    ``repeats`` is how often one trial of each workload is run again.
    """

    subjects: Subjects
    settings: JudgeSettings
    worker: Callee
    deadline: Deadline
    repeats: int = REPEATS

    def run(self) -> tuple[WorkloadResult, ...]:
        """All checks of all subjects. Raises CandidateFault at the first that fails."""
        subjects = self.subjects
        unsupported: set[int] = set()
        errors = [0.0] * len(subjects.subjects)
        for guard in subjects.guards.values():
            guard.restore()  # whatever the candidate before this one wrote
        if subjects.change is not None:
            with subjects.changed_weights():
                self.worker.pack(0, self.deadline.left, changed=True)
                wrong = self._first_wrong(errors, unsupported)
            if wrong is not None:
                self._blame(*wrong)
        self.worker.pack(0, self.deadline.left)
        for index, subject in enumerate(subjects.subjects):
            was_right = subjects.change is not None
            self._trials(index, subject, self._ordinary(subject), errors, unsupported, was_right=was_right)
            if index not in unsupported:
                self._repeat(index, subject, 0, f"workload {subject.id}")
        return tuple(
            WorkloadResult(workload=subject.id, detail="unsupported")
            if index in unsupported
            else WorkloadResult(workload=subject.id, error=errors[index])
            for index, subject in enumerate(self.subjects.subjects)
        )

    def _ordinary(self, subject: Subject) -> range:
        """Its trials under the first weights."""
        return range(subject.trials if self.subjects.change is None else subject.trials - 1)

    def _first_wrong(self, errors: list[float], unsupported: set[int]) -> tuple[int, CandidateFault] | None:
        """Run every subject's trial with changed weights: the first that gets wrong numbers, and how.

        Raises CandidateFault for what has nothing to do with numbers.
        """
        for index, subject in enumerate(self.subjects.subjects):
            try:
                self._trials(index, subject, [subject.trials - 1], errors, unsupported)
            except _WrongNumbers as fault:
                return index, fault
        return None

    def _blame(self, index: int, fault: CandidateFault) -> None:
        """Say of a result that was wrong with changed weights whether it has to do with them. Raises CandidateFault.

        They come first, so most kernels that fail there are wrong with any weights, and that is then the reason.
        """
        subject = self.subjects.subjects[index]
        self.worker.pack(0, self.deadline.left)
        try:
            for trial in self._ordinary(subject):
                self._trials(index, subject, [trial], [0.0] * len(self.subjects.subjects), set())
        except CandidateFault as plain:
            raise (fault if plain.outcome is Outcome.HUNG else plain) from None
        raise CandidateFault(
            Outcome.WRONG,
            f"{fault.reason} (with changed weights only, it is right with the task's own: {_STALE})",
        ) from fault

    def _trials(
        self,
        index: int,
        subject: Subject,
        trials: Sequence[int],
        errors: list[float],
        unsupported: set[int],
        *,
        was_right: bool = False,
    ) -> None:
        if index in unsupported:
            return
        place = f"workload {subject.id}"
        if not self._called(index, subject, trials, place):
            unsupported.add(index)
            return
        for trial in trials:
            for number, got in enumerate(self._outputs(subject, trial)):
                comparison = self._compare(got, subject.truths[trial][number])
                errors[index] = max(errors[index], comparison.error)
                if comparison.problem:
                    stale = self._stale(subject, trials) if was_right else ""
                    raise _WrongNumbers(
                        Outcome.WRONG, f"{place}, output {number}: {comparison.problem}{stale}"
                    )

    def _stale(self, subject: Subject, trials: Sequence[int]) -> str:
        """What to add if no trial under the task's weights is right, where the one under changed weights before was."""
        if len(trials) < 2 or any(self.right(subject, trial) for trial in trials):
            return ""
        return f" (it was right with the weights it saw first, and is wrong after they changed: {_STALE})"

    def _called(self, index: int, subject: Subject, trials: Sequence[int], place: str) -> bool:
        """Run some trials into poisoned outputs; False if the candidate declined. Raises CandidateFault."""
        arena, region = self.subjects.outputs, subject.outputs.check
        arena.poison_outputs(region)
        run = self.worker.run(2 * index, trials[0], len(trials), self.deadline.left, f"running {place}")
        if not self.served(run, subject, place):
            return False
        self.unchanged(place)
        damage = arena.damaged_gap(region, region.slots)
        if damage is not None:
            raise CandidateFault(
                Outcome.WRONG,
                f"{place}: it writes outside its outputs ({damage[1]} bytes into a call's outputs)",
            )
        return True

    def _repeat(self, index: int, subject: Subject, trial: int, place: str) -> None:
        """Run one trial again: the same bits, or at least right again. Raises CandidateFault."""
        kept = [
            got.clone() if got.numel() <= _KEPT_ELEMENTS else None for got in self._outputs(subject, trial)
        ]
        for _ in range(self.repeats):
            if not self._called(index, subject, [trial], place):
                raise CandidateFault(
                    Outcome.WRONG, f"{place}: it serves a call and declines the same call later"
                )
            for number, (got, before) in enumerate(zip(self._outputs(subject, trial), kept, strict=True)):
                if before is not None and torch.equal(_bytes(got), _bytes(before)):
                    continue
                if problem := self._compare(got, subject.truths[trial][number]).problem:
                    raise CandidateFault(
                        Outcome.WRONG,
                        f"{place}, output {number}: its result depends on the repetition (a data race, or memory "
                        f"it did not write): {problem}",
                    )

    def again(self, index: int, subject: Subject, trial: int) -> None:
        """Run a trial that was right once more: it must be right again. Raises CandidateFault."""
        place = f"workload {subject.id}"
        if not self._called(index, subject, [trial], place):
            raise CandidateFault(Outcome.WRONG, f"{place}: it serves a call and declines the same call later")
        for number, (got, truth) in enumerate(
            zip(self._outputs(subject, trial), subject.truths[trial], strict=True)
        ):
            if problem := self._compare(got, truth).problem:
                raise CandidateFault(Outcome.WRONG, f"{place}, output {number}: {problem}")

    def _outputs(self, subject: Subject, trial: int) -> list[torch.Tensor]:
        return self.subjects.outputs.slot(subject.outputs.check, trial)

    def right(self, subject: Subject, trial: int) -> bool:
        """Whether all outputs of a trial that was just run pass."""
        pairs = zip(self._outputs(subject, trial), subject.truths[trial], strict=True)
        return not any(self._compare(got, truth).problem for got, truth in pairs)

    def unchanged(self, place: str, kinds: Sequence[str] = ("inputs", "weights")) -> None:
        """Raises CandidateFault if inputs or weights were written where they cannot be sealed. Puts them back."""
        for kind, guard in self.subjects.guards.items():
            if kind in kinds and not guard.intact():
                guard.restore()
                raise CandidateFault(Outcome.WRONG, f"{place}: it writes to its {kind}; they are read-only")

    def control_kept(self, run: Run, place: str) -> None:
        """Raises CandidateFault if a command left floating-point control changed."""
        if control := describe_change(self.worker.control, run.control):
            raise CandidateFault(
                Outcome.WRONG, f"{place}: it leaves {control}, which would change the model's numerics"
            )

    def served(self, run: Run, subject: Subject, place: str) -> bool:
        """False if the candidate declined an untimed subject. Raises CandidateFault for what it must not do."""
        self.control_kept(run, place)
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

    def _compare(self, got: torch.Tensor, truth: Truth) -> Comparison:
        if got.dtype == torch.bool and (problem := _no_bools(got.view(torch.uint8))):
            return Comparison(float("inf"), problem)
        comparison = truth.compare(got, self.settings.profile, self.tolerance)
        if comparison.problem and (text := unwritten(got, "")):
            return Comparison(comparison.error, text)
        return comparison

    @property
    def tolerance(self) -> Tolerance:
        return self.subjects.task.spec.tolerance


def unwritten(tensor: torch.Tensor, otherwise: str) -> str:
    """Says how much of an output still holds the poison it was handed with, or ``otherwise``.

    Floats count only if all their NaNs are poison: a kernel computes NaNs of other bits.
    """
    count, first = 0, None
    for block in blocks(tensor):
        part = block.of(tensor)
        missing = _poisoned(part)
        if part.dtype.is_floating_point and bool((torch.isnan(part.float()) & ~missing).any()):
            return otherwise
        count += int(missing.sum())
        if first is None and (index := first_true(missing)) is not None:
            first = block.place(index)
    if first is None:
        return otherwise
    return f"{count} of {tensor.numel()} elements were never written (first at {first})"


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _poisoned(tensor: torch.Tensor) -> torch.Tensor:
    """Which elements have all bits set, as outputs have before a call."""
    return tensor.view(_INTEGERS[tensor.element_size()]) == -1


def _no_bools(raw: torch.Tensor) -> str:
    """What is wrong with bytes that should each be 0 or 1; empty if nothing is."""
    if any(bool((block.of(raw) > 1).any()) for block in blocks(raw)):
        return unwritten(raw, "a bool that is neither 0 nor 1")
    return ""


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """As integers of the same width, so that NaNs can be compared."""
    return tensor.view(_INTEGERS[tensor.element_size()])

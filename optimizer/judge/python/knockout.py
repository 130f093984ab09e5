"""The rule "custom kernel" at run time: a forward must launch kernels of its own, and need them for its answer."""

from __future__ import annotations

from optimizer.judge.checks import Checker
from optimizer.judge.python.spawn import PythonWorker
from optimizer.judge.remote import CandidateFault
from optimizer.judge.subjects import Subject
from optimizer.judge.verdict import Outcome

_RULE = "refused by rule 'custom kernel': "


def require_custom_kernels(checker: Checker, worker: PythonWorker) -> int:
    """After all checks have passed: the fewest custom launches of a forward of any timed subject.

    Raises:
        CandidateFault: a timed subject's forward launches none, or its outputs are as right without its launches.
    """
    subjects = checker.subjects.subjects
    fewest: int | None = None
    for index, subject in enumerate(subjects):
        if not subject.timed or not _has_elements(subject):
            continue
        launched = worker.launches.get(2 * index, 0)
        if launched < 1:
            raise CandidateFault(
                Outcome.REFUSED,
                f"{_RULE}its forward launches none of its own kernels on workload {subject.id}; "
                "a candidate must compute with at least one",
            )
        fewest = launched if fewest is None else min(fewest, launched)
    for index, subject in enumerate(subjects):
        if not subject.timed or not _has_elements(subject):
            continue
        if _right_without(checker, worker, index, subject):
            raise CandidateFault(
                Outcome.REFUSED,
                f"{_RULE}its outputs on workload {subject.id} are as right when its kernels do not run; "
                "the kernels must compute them",
            )
    return fewest or 0


def _right_without(checker: Checker, worker: PythonWorker, index: int, subject: Subject) -> bool:
    """Whether the first trial's outputs are right with launches suppressed."""
    arena, region = checker.subjects.outputs, subject.outputs.check
    arena.poison_outputs(region)
    launches = dict(worker.launches)
    # Other inputs first: what a scratch buffer keeps of the last call must not be the first trial's answer.
    worker.run(2 * index, subject.trials - 1, 1, checker.deadline.left, f"running {subject.id} again")
    worker.knock_out(True, checker.deadline.left)
    try:
        worker.run(2 * index, 0, 1, checker.deadline.left, f"running {subject.id} without its kernels")
    except CandidateFault:
        return False  # it fails without its kernels: it needs them
    finally:
        worker.launches = launches
    worker.knock_out(False, checker.deadline.left)
    return checker.right(subject, 0)


def _has_elements(subject: Subject) -> bool:
    return any(0 not in spec.shape for spec in subject.workload.outputs)

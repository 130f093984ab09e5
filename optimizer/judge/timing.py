"""Time a candidate against PyTorch eager: interleaved, cold weights, fresh inputs, clocks read from outside.

A *batch* calls one side once on every slot of the timing region. Batches go reference, candidate, candidate, reference
(ABBA); both sides see the same inputs, and each batch of the candidate is checked call by call against eager's
answers, so a time exists only for work that was done. Eager runs in the judge's own process: the same memory, the same
core and the same kind of clock (CPU time) as the candidate, without anything of it in the candidate's process.

What a call costs beyond the kernel is charged on both sides. Eager's time includes its own dispatch, as in the
model. The candidate's loop has no Python in it, so the cost of calling it from the model, measured beside each of its
batches on an empty kernel with the same tensors, is added. What is subtracted from the candidate is only the cost of
commanding its process, measured on empty batches.

At one place that the candidate cannot foresee, a pair is an *audit*: on inputs drawn wholly anew, where what looks
answers up is slow (see :mod:`optimizer.judge.unseen`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from optimizer.judge import quiet
from optimizer.judge.checks import Checker, unwritten
from optimizer.judge.empty_calls import EmptyCalls
from optimizer.judge.oracle import as_tuple
from optimizer.judge.remote import Callee, CandidateFault, Run, SandboxFault
from optimizer.judge.subjects import Subject, Subjects
from optimizer.judge.unseen import accusation, audit, under_load
from optimizer.judge.verdict import Outcome, Quantiles

MIN_CYCLES, MAX_CYCLES = 3, 6  # of four batches: 6 to 12 samples a side
HOPELESS = 0.7  # a candidate slower than this after MIN_CYCLES is not measured further
EMPTY_BATCHES = 5
# Of a batch's wall time beyond a fixed part for waking up, at most this share (median) may be neither spent running
# nor queueing for a core.
IDLE_SHARE, IDLE_NS = 0.3, 1_000_000
# With several threads a pair that other programs disturbed is measured again, so many times; then everything is.
DISTURBED_PAIRS = 12
QUIET_ATTEMPTS, QUIET_PAUSE_S = 3, 0.2


@dataclass(frozen=True)
class Timed:
    """Both sides' microseconds per call, and the two parts of the candidate's, medians."""

    reference: Quantiles
    candidate: Quantiles
    kernel: float  # in its own process
    overhead: float  # calling it from the model


class Pair(NamedTuple):
    """One batch of each side on the same inputs: microseconds per call. ``candidate`` is both its parts together."""

    reference: float
    kernel: float
    overhead: float
    unseen: float  # the share of calls on inputs drawn wholly anew, where that was asked for

    @property
    def candidate(self) -> float:
        return self.kernel + self.overhead


class _Disturbed(Exception):
    """Other programs disturbed too many pairs of one measurement."""


class Eager:
    """The reference side: eager calls of one subject on every slot of its timing region."""

    def __init__(self, subjects: Subjects, subject: Subject, threads: int) -> None:
        region = subject.inputs.timing
        assert region is not None
        self._calls = [
            (subjects.models[slot % subjects.copies].forward, tuple(subjects.inputs.slot(region, slot)))
            for slot in range(region.slots)
        ]
        self._clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns

    def batch(self) -> tuple[float, list[object]]:
        """Microseconds per call, and every call's result."""
        kept: list[object] = []
        keep = kept.append
        with torch.no_grad():
            start = self._clock()
            for forward, inputs in self._calls:
                keep(forward(*inputs))
            spent = self._clock() - start
        return spent / 1000 / len(self._calls), kept


@dataclass(frozen=True)
class Timer:
    """Times one loaded, checked candidate. ``empty_calls`` are by subject id."""

    subjects: Subjects
    checker: Checker
    empty_calls: Mapping[str, EmptyCalls]
    empty: Sequence[Run]  # commands without a call, from before the candidate was loaded
    idle: list[float] = field(default_factory=list)  # of the batches of the subject being timed

    @property
    def _worker(self) -> Callee:
        return self.checker.worker

    def time(self, index: int, subject: Subject) -> Timed:
        """Measure one timed subject.

        Raises:
            CandidateFault: a timed call is wrong or the clocks disagree.
            SandboxFault: several threads, and the machine is not quiet enough for the wall clock.
        """
        threads = self.checker.settings.threads
        if threads == 1:
            return self._measure(index, subject)
        for attempt in range(QUIET_ATTEMPTS):
            started = time.monotonic()
            time.sleep(attempt * QUIET_PAUSE_S)
            with contextlib.suppress(_Disturbed):
                if _quiet(threads):
                    timed = self._measure(index, subject)
                    if _quiet(threads):
                        return timed
            self.checker.deadline.extend(time.monotonic() - started)  # not the candidate's doing
        raise SandboxFault(
            f"workload {subject.id}: other programs took the cores that {threads} threads were to be timed on, "
            f"{QUIET_ATTEMPTS} times in a row; {quiet.REMEDY}"
        )

    def _measure(self, index: int, subject: Subject) -> Timed:
        """One measurement. Raises _Disturbed if too many pairs of it were disturbed."""
        settings = self.checker.settings
        assert subject.refresher is not None
        self.idle.clear()
        with _one_core(self._worker, settings.threads):
            started = time.monotonic()
            series = _Series(self, index, subject)
            series.pair()  # warm-up, checked but not counted
            pairs: list[Pair] = []
            usual: list[float] = []  # the candidate's side of them
            audits: list[Pair] = []
            audited = self.subjects.dice.randrange(1, 2 * MIN_CYCLES) if subject.refresher.recurs else -1
            for cycle in range(MAX_CYCLES):
                for reference_first in (True, False):
                    if len(pairs) == audited:
                        audits.append(series.pair(unseen=True))
                    pairs.append(series.pair(reference_first))
                    usual.append(pairs[-1].candidate)
                if cycle + 1 < MIN_CYCLES:
                    continue
                slow = statistics.median(pair.reference for pair in pairs) < HOPELESS * statistics.median(
                    usual
                )
                if slow or time.monotonic() - started > settings.timing_seconds:
                    break
            if audits:
                self._require_as_fast(series, pairs, audits)
        if settings.threads == 1 and (idle := statistics.median(self.idle)) > IDLE_SHARE:
            raise CandidateFault(
                Outcome.IMPLAUSIBLE,
                f"workload {subject.id}: it was idle for {idle:.0%} of the time; a kernel computes, "
                "it does not sleep or have its work done elsewhere",
            )
        return Timed(
            quantiles([pair.reference for pair in pairs]),
            quantiles(usual),
            statistics.median(pair.kernel for pair in pairs),
            statistics.median(pair.overhead for pair in pairs),
        )

    def _require_as_fast(self, series: _Series, pairs: Sequence[Pair], audits: list[Pair]) -> None:
        """Raises CandidateFault if the candidate is clearly slower in audits. ``audits`` are those made already."""
        # The same for all: drawing so many inputs leaves this process, of which it is a measure, in another state.
        overhead = statistics.median(pair.overhead for pair in pairs)
        reference = statistics.median(pair.reference for pair in pairs)

        def batch() -> tuple[float, float]:
            pair = audits.pop() if audits else series.pair(unseen=True)
            return under_load(pair.kernel + overhead, pair.reference, reference), pair.unseen

        slower = audit([pair.kernel + overhead for pair in pairs], batch)
        if slower > 1.0:
            raise CandidateFault(Outcome.IMPLAUSIBLE, accusation(series.subject.id, slower))

    def pair(
        self,
        index: int,
        subject: Subject,
        eager: Eager,
        idle_cost: float,
        reference_first: bool,
        unseen: bool,
    ) -> Pair | None:
        """One batch of each side on the same fresh inputs, or on inputs drawn wholly anew. For one measurement.

        None if other programs disturbed one of them; that is looked for with several threads only.
        """
        assert subject.refresher is not None
        dice = self.subjects.dice
        share = 0.0
        if unseen:
            share = subject.refresher.unseen(dice)
        else:
            subject.refresher.refresh(dice)
        alone: list[bool] = []
        if reference_first:
            with self._watched(alone):
                reference, results = eager.batch()
        with self._watched(alone):
            kernel = self._candidate_batch(index, subject, idle_cost)
        overhead = self.empty_calls[subject.id].microseconds()
        if not reference_first:
            with self._watched(alone):
                reference, results = eager.batch()
        self._verify(subject, results)
        return Pair(reference, kernel, overhead, share) if all(alone) else None

    @contextmanager
    def _watched(self, alone: list[bool]) -> Iterator[None]:
        """Appends whether both sides had their cores to themselves meanwhile; with one thread it does not matter."""
        threads = self.checker.settings.threads
        if threads == 1:
            yield
            return
        quiet.rest()  # eager's threads spin for a while after their work
        bystander = quiet.Bystander((os.getpid(), self._worker.pid), threads)
        bystander.start()
        yield
        alone.append(bystander.stop())

    def _candidate_batch(self, index: int, subject: Subject, idle_cost: float) -> float:
        region = subject.outputs.timing
        assert region is not None
        self.subjects.outputs.poison_outputs(region)
        place = f"workload {subject.id}"
        checker = self.checker
        run = self._worker.run(
            2 * index + 1, 0, region.slots, checker.deadline.left, f"being timed on {place}"
        )
        if not checker.served(run, subject, place):
            raise CandidateFault(Outcome.UNSUPPORTED, f"{place}: it declined while being timed")
        single = checker.settings.threads == 1
        if single and run.cpu_ns > 1.05 * run.wall_ns + IDLE_NS:
            raise CandidateFault(
                Outcome.IMPLAUSIBLE, f"{place}: it used more CPU time than the wall clock has"
            )
        self.idle.append(max(0.0, run.idle_ns - IDLE_NS) / run.wall_ns)
        spent = (run.cpu_ns if single else run.wall_ns) - idle_cost
        return max(spent, 0.0) / 1000 / region.slots

    def _verify(self, subject: Subject, results: list[object]) -> None:
        """Every timed call's outputs against eager's. Raises CandidateFault."""
        region, arena = subject.outputs.timing, self.subjects.outputs
        assert region is not None
        place = f"workload {subject.id}, a timed call on fresh inputs"
        if arena.damaged_gap(region, region.slots) is not None:
            raise CandidateFault(Outcome.WRONG, f"{place}: it writes outside its outputs")
        columns = zip(*(as_tuple(result) for result in results), strict=True)
        for number, (column, allowance) in enumerate(zip(columns, subject.allowances, strict=True)):
            got, expected = arena.stacked(region, number), torch.stack(column)
            if got.dtype == torch.bool:
                got, expected = got.view(torch.uint8), expected.to(torch.uint8)
            if problem := allowance.problem(got, expected):
                problem = unwritten(got, problem)
                raise CandidateFault(Outcome.WRONG, f"{place}, output {number}: {problem}")

    def empty_cost(self, index: int) -> float:
        """Nanoseconds of a batch of no calls: what commanding the worker costs.

        A loaded candidate can slow its own process at these (Python's C API is in it) and would be paid for it, so
        they never count for more than they took before it was loaded.
        """
        single = self.checker.settings.threads == 1
        left = self.checker.deadline.left
        self._worker.run(2 * index + 1, 0, 0, left, "being prepared")
        runs = [self._worker.run(2 * index + 1, 0, 0, left, "being prepared") for _ in range(EMPTY_BATCHES)]
        if not single:  # it is subtracted: of disturbed wall times the least does no harm
            return min(run.wall_ns for run in (*runs, *self.empty))
        return min(statistics.median(run.cpu_ns for run in side) for side in (runs, self.empty))


class _Series:
    """The pairs of one measurement. Raises _Disturbed (on a pair) once too many of them were disturbed."""

    def __init__(self, timer: Timer, index: int, subject: Subject) -> None:
        self.subject = subject
        self._timer, self._index = timer, index
        self._eager = Eager(timer.subjects, subject, timer.checker.settings.threads)
        self._idle_cost = timer.empty_cost(index)
        self._disturbed = 0

    def pair(self, reference_first: bool = True, *, unseen: bool = False) -> Pair:
        """The next pair that nothing disturbed."""
        while True:
            pair = self._timer.pair(
                self._index, self.subject, self._eager, self._idle_cost, reference_first, unseen
            )
            if pair is not None:
                return pair
            self._disturbed += 1
            if self._disturbed > DISTURBED_PAIRS:
                raise _Disturbed


def quantiles(samples: list[float]) -> Quantiles:
    """p20, median and p80 by linear interpolation."""
    ordered = sorted(samples)

    def at(share: float) -> float:
        position = share * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

    return Quantiles(p20=at(0.2), median=at(0.5), p80=at(0.8), samples=tuple(round(s, 4) for s in samples))


def _quiet(threads: int) -> bool:
    quiet.rest()
    return quiet.probe(threads) >= quiet.ENOUGH


@contextmanager
def _one_core(worker: Callee, threads: int) -> Iterator[None]:
    """With one thread, keep both sides on the core this thread is on: same caches, same clock rate."""
    if threads > 1:
        yield
        return
    allowed = os.sched_getaffinity(0)
    core = ctypes.CDLL(None).sched_getcpu()
    if core not in allowed:
        yield
        return
    worker.pin(core)
    try:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {core})
        yield
    finally:
        os.sched_setaffinity(0, allowed)

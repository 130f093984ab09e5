"""Time a candidate on a GPU against PyTorch eager: interleaved, cold weights, fresh inputs, by the judge's clock.

Two regimes, each in pairs in the order reference, candidate, candidate, reference (ABBA). *Eager*: one call on each of
some slots of the timing region, as a program makes them, from Python. *Graph*: one call on every slot, captured into
one CUDA graph and replayed, which is how a served model runs, and what decides. Both are wall time read in the judge's
process, from the command to the worker's "done", which it may only say when the whole device is idle; what an empty
command costs, measured before the candidate was loaded, is subtracted. The reference runs in the judge's own process
on the same device and inputs. A graph is replayed once on its inputs, then they are drawn anew: a kernel that knows
what it has computed before finds nothing to skip.

Slots rotate over copies of the weights that together exceed the L2 cache, so weights come from memory without a flush
in between. Event times, with an explicit flush before each call, are taken once: they are the worker's claim, and
a claim far below what the replays took is a lie.

One pair of each regime is an audit, on inputs drawn wholly anew (:mod:`optimizer.judge.unseen`).

Every batch's outputs are compared with eager's on the same fresh inputs, and the inputs must be as they were.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from optimizer.judge import wire
from optimizer.judge.checks import Checker, unwritten
from optimizer.judge.device.stage import NotCapturable, Stage
from optimizer.judge.oracle import as_tuple
from optimizer.judge.pristine import Pristine
from optimizer.judge.python.spawn import PythonWorker
from optimizer.judge.remote import CandidateFault, Run
from optimizer.judge.subjects import Subject, Subjects
from optimizer.judge.timing import HOPELESS, MAX_CYCLES, MIN_CYCLES, quantiles
from optimizer.judge.unseen import accusation, audit, under_load
from optimizer.judge.verdict import Outcome, Quantiles

CLOCK = "wall time of batches, device idle before and after, read outside the worker"
# The eager regime takes so many of the slots that a batch lasts about this long.
EAGER_SECONDS = 5e-3
# Events include a cold cache, which replays need not; replays include the gaps between kernels, which events need not.
CLAIM_SHARE, CLAIM_GAP_US = 0.7, 3.0


@dataclass(frozen=True)
class DeviceTimed:
    """Both sides' microseconds per call; the graph columns are None where a side cannot be captured."""

    reference: Quantiles
    candidate: Quantiles
    graph_reference: Quantiles | None
    graph_candidate: Quantiles | None
    remark: str = ""  # why there are no graph columns

    @property
    def fastest(self) -> float:
        """The candidate's least median, for plausibility."""
        graph = self.graph_candidate.median if self.graph_candidate is not None else float("inf")
        return min(self.candidate.median, graph)


class Reference:
    """The eager side of one subject: its calls, and their capture, which is kept for the candidates to come."""

    def __init__(self, subjects: Subjects, subject: Subject, stage: Stage, region: int) -> None:
        timing = subject.inputs.timing
        assert timing is not None
        self._stage = stage
        self._region = region
        self._calls = [
            _bound(subjects.models[slot % subjects.copies], subjects.inputs.slot(timing, slot))
            for slot in range(timing.slots)
        ]

    def batch(self, slots: int) -> tuple[float, list[object]]:
        """Microseconds per call, and every call's result, over the first ``slots``."""
        with torch.no_grad():
            self._stage.nudge()  # the device turns to this process; the candidate's had it last
            spent: list[float] = []
            with self._stage.wall(spent):
                results = [call() for call in self._calls[:slots]]
        return spent[0] / slots, results

    def replay(self) -> tuple[float, list[object]]:
        """The same over all slots under graph replay. Raises NotCapturable."""
        with torch.no_grad():
            self._stage.nudge()  # the device turns to this process; the candidate's had it last
            spent: list[float] = []
            with self._stage.wall(spent):
                results = self._stage.replay(self._region, self._calls)
        return spent[0] / len(self._calls), results


@dataclass(frozen=True)
class _Batches:
    """What one regime of one subject repeats; each side gives microseconds per call over the first ``slots``."""

    index: int
    subject: Subject
    pristine: Pristine
    reference: Callable[[], tuple[float, list[object]]]
    candidate: Callable[[], float]
    slots: int


@dataclass
class DeviceTimer:
    """Times one loaded, checked candidate.

    Args:
        stage: the judge's own, for the reference.
        empty_ns: what an empty command takes, from before the candidate was loaded.
    """

    subjects: Subjects
    checker: Checker
    worker: PythonWorker
    stage: Stage
    empty_ns: float
    claims: dict[str, list[float]] = field(default_factory=dict)  # event times by subject, as the worker says

    def time(self, index: int, subject: Subject) -> DeviceTimed:
        """Measure one timed subject in both regimes.

        Raises:
            CandidateFault: a timed call is wrong, inputs were changed, or the clocks disagree.
        """
        reference = Reference(self.subjects, subject, self.stage, 2 * index + 1)
        slots = eager_slots(self._slots(subject), self.subjects.copies, subject.eager_seconds)

        def theirs() -> tuple[float, list[object]]:
            return reference.batch(slots)

        def mine() -> float:
            run = self._command(wire.RUN, index, subject, "being timed", 0, slots)
            return max(run.wall_ns - self.empty_ns, 0) / 1000 / slots

        eager = self._regime(index, subject, theirs, mine, slots)
        graph, remark = self._graph_regime(index, subject, reference)
        claimed = self._events(index, subject)
        if graph[1] is not None and claimed + CLAIM_GAP_US < CLAIM_SHARE * graph[1].median:
            raise CandidateFault(
                Outcome.IMPLAUSIBLE,
                f"workload {subject.id}: clocks disagree: {claimed:.3g} us by the worker's events, "
                f"{graph[1].median:.3g} us by replays timed from outside",
            )
        return DeviceTimed(*eager, *graph, remark)

    def _replayed_alone(self, reference: Reference) -> Quantiles:
        """The reference's replays where the candidate has none: what it is up against in a served model."""
        return quantiles([reference.replay()[0] for _ in range(2 * MIN_CYCLES)])

    def _graph_regime(
        self, index: int, subject: Subject, reference: Reference
    ) -> tuple[tuple[Quantiles | None, Quantiles | None], str]:
        """Both sides' replays, or why there are none. Each replay is the first one on its inputs."""
        try:
            reference.replay()
        except NotCapturable as error:
            return (None, None), f"the reference cannot be captured: {error}"
        run = self._command(wire.REPLAY, index, subject, "being captured")
        if run.status == wire.NOT_CAPTURABLE:
            why = " ".join(str(_said(run).get("error", "")).split())[:200]
            return (self._replayed_alone(reference), None), f"it cannot be captured into a CUDA graph: {why}"
        slots = self._slots(subject)

        def mine() -> float:
            run = self._command(wire.REPLAY, index, subject, "being replayed")
            return max(run.wall_ns - self.empty_ns, 0) / 1000 / slots

        return self._regime(index, subject, reference.replay, mine, slots), ""

    def _regime(
        self,
        index: int,
        subject: Subject,
        reference: Callable[[], tuple[float, list[object]]],
        candidate: Callable[[], float],
        slots: int,
    ) -> tuple[Quantiles, Quantiles]:
        """Pairs until they have taken the wanted time; (reference, candidate). A batch is the first ``slots``."""
        inputs = subject.inputs.timing
        assert inputs is not None
        assert subject.refresher is not None
        pristine = Pristine(self.subjects.inputs.bytes[inputs.base : inputs.end])
        batches = _Batches(index, subject, pristine, reference, candidate, slots)
        started = time.monotonic()
        mine: list[float] = []
        theirs: list[float] = []
        audits: list[tuple[float, float, float]] = []
        # At a place that the candidate cannot foresee.
        audited = self.subjects.dice.randrange(1, 2 * MIN_CYCLES) if subject.refresher.recurs else -1
        self._pair(batches)  # warm-up, checked but not counted
        for cycle in range(MAX_CYCLES):
            for reference_first in (True, False):
                if len(mine) == audited:
                    audits.append(self._pair(batches, unseen=True))
                pair = self._pair(batches, reference_first=reference_first)
                theirs.append(pair[0])
                mine.append(pair[1])
            if cycle + 1 < MIN_CYCLES:
                continue
            slow = statistics.median(theirs) < HOPELESS * statistics.median(mine)
            if slow or time.monotonic() - started > self.checker.settings.timing_seconds / 2:
                break
        if audits:
            self._require_as_fast(batches, theirs, mine, audits)
        return quantiles(theirs), quantiles(mine)

    def _require_as_fast(
        self,
        batches: _Batches,
        theirs: Sequence[float],
        mine: Sequence[float],
        audits: list[tuple[float, float, float]],
    ) -> None:
        """Raises CandidateFault if it is clearly slower on inputs never seen. ``audits`` are those made already."""
        usual = statistics.median(theirs)

        def batch() -> tuple[float, float]:
            reference, candidate, share = audits.pop() if audits else self._pair(batches, unseen=True)
            return under_load(candidate, reference, usual), share

        slower = audit(mine, batch)
        if slower > 1.0:
            raise CandidateFault(Outcome.IMPLAUSIBLE, accusation(batches.subject.id, slower))

    def _pair(
        self, batches: _Batches, *, reference_first: bool = True, unseen: bool = False
    ) -> tuple[float, float, float]:
        """One batch of each side on the same fresh inputs: microseconds per call of reference and candidate, and the
        share of calls on inputs drawn wholly anew, if that is asked for."""
        index, subject, slots = batches.index, batches.subject, batches.slots
        assert subject.refresher is not None
        share = 0.0
        if unseen:
            share = subject.refresher.unseen(self.subjects.dice, slots)
        else:
            subject.refresher.refresh(self.subjects.dice)
        batches.pristine.renew()
        if reference_first:
            theirs, expected = batches.reference()
            mine = self._woken(index, subject, batches.candidate)
        else:
            mine = self._woken(index, subject, batches.candidate)
            self._require_intact(
                subject, batches.pristine
            )  # or eager would compute on what the candidate left
            theirs, expected = batches.reference()
        self._verify(index, subject, expected, slots)
        self._require_intact(subject, batches.pristine)
        return theirs, mine, share

    def _woken(self, index: int, subject: Subject, candidate: Callable[[], float]) -> float:
        """A batch, the device turned to the worker before, without anything of the candidate: it must not see the
        inputs before the clock runs."""
        self._command(wire.WAKE, index, subject, "being prepared")
        return candidate()

    def _command(
        self, action: int, index: int, subject: Subject, doing: str, second: int = 0, third: int = 0
    ) -> Run:
        torch.cuda.synchronize()
        run = self.worker.command(
            action,
            2 * index + 1,
            second,
            third,
            limit_s=self.checker.deadline.left,
            doing=f"{doing} on workload {subject.id}",
        )
        # Threads are not counted here, the driver starts some of its own; between commands they are all stopped.
        self.checker.control_kept(run, f"workload {subject.id}")
        if run.status != wire.NOT_CAPTURABLE:
            self.worker.told(run, f"{doing} on workload {subject.id}")
        return run

    def _events(self, index: int, subject: Subject) -> float:
        """Median of the event times the worker claims, microseconds per call."""
        run = self._command(wire.TIME, index, subject, "being timed by events")
        times = _numbers(_said(run).get("events_us"))
        if not times:
            raise CandidateFault(
                Outcome.IMPLAUSIBLE, f"workload {subject.id}: the worker gave no event times"
            )
        self.claims[subject.id] = times
        return statistics.median(times)

    def _verify(self, index: int, subject: Subject, expected: Sequence[object], slots: int) -> None:
        """Publish the last batch's outputs, those of the first ``slots``, and compare each with eager's.

        Raises:
            CandidateFault: one is not right.
        """
        region, arena = subject.outputs.timing, self.subjects.outputs
        assert region is not None
        arena.poison_outputs(region)
        self._command(wire.PUBLISH, index, subject, "handing over timed outputs", 0, slots)
        place = f"workload {subject.id}, a timed call on fresh inputs"
        columns = zip(*(as_tuple(result) for result in expected), strict=True)
        for number, (column, allowance) in enumerate(zip(columns, subject.allowances, strict=True)):
            got, right = arena.stacked(region, number)[:slots], torch.stack(column)
            if got.dtype == torch.bool:
                got, right = got.view(torch.uint8), right.to(torch.uint8)
            if problem := allowance.problem(got, right):
                raise CandidateFault(Outcome.WRONG, f"{place}, output {number}: {unwritten(got, problem)}")

    def _require_intact(self, subject: Subject, pristine: Pristine) -> None:
        if not pristine.intact():
            raise CandidateFault(
                Outcome.WRONG, f"workload {subject.id}: it changes its inputs while being timed"
            )

    def _slots(self, subject: Subject) -> int:
        assert subject.inputs.timing is not None
        return subject.inputs.timing.slots


def _bound(forward: Callable[..., object], inputs: Sequence[torch.Tensor]) -> Callable[[], object]:
    arguments = tuple(inputs)
    return lambda: forward(*arguments)


def eager_slots(slots: int, copies: int, seconds: float) -> int:
    """How many slots an eager batch takes: enough to last, all copies of the weights among them.

    >>> eager_slots(512, 4, 1e-4), eager_slots(512, 64, 1.0), eager_slots(20, 1, 1e-6)
    (50, 64, 20)
    """
    return min(slots, max(copies, round(EAGER_SECONDS / max(seconds, 1e-7))))


def _numbers(claimed: object) -> list[float]:
    """A claimed list of finite numbers; empty if it is anything else."""
    if not isinstance(claimed, list) or not all(isinstance(value, int | float) for value in claimed):
        return []
    times = [float(value) for value in claimed]
    return times if all(map(math.isfinite, times)) else []


def _said(run: Run) -> dict[str, Any]:
    """The worker's JSON, which is only ever a claim; empty if it is none."""
    try:
        said = json.loads(run.text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}

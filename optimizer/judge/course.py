"""One evaluation under way: what is known of it so far, and the verdict that whatever ends it becomes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from optimizer.judge.isolation.walls import Wall
from optimizer.judge.subjects import Subjects
from optimizer.judge.verdict import WIN_MARGIN, Outcome, Quantiles, Verdict, WorkloadResult
from optimizer.machine import machine_facts


@dataclass
class Course:
    """What is known of an evaluation so far; whatever ends it, this goes into the verdict.

    ``started`` is on :func:`time.perf_counter`, 0.0 until the candidate is run. ``log`` is compiler output.
    """

    device: str = "cpu"
    machine: str = ""  # key of the machine or device; empty for this machine's processor
    clock: str = ""
    build_seconds: float = 0.0
    started: float = 0.0
    walls: tuple[Wall, ...] = ()
    results: tuple[WorkloadResult, ...] = ()
    launches: int | None = None
    state_changes: tuple[str, ...] = ()
    profile: str = ""
    log: str = ""

    def verdict(
        self, outcome: Outcome, reason: str, *, speedup: float | None = None, roofline: float | None = None
    ) -> Verdict:
        """The verdict as things stand. A failed candidate has no times, also where some were taken."""
        results = self.results
        if outcome is not Outcome.CORRECT:
            untimed = dict.fromkeys(("reference", "candidate", "graph_reference", "graph_candidate"))
            results = tuple(result.model_copy(update=untimed) for result in results)
        timed = any(result.candidate is not None for result in results)
        return Verdict(
            outcome=outcome,
            reason=reason,
            results=results,
            speedup=speedup,
            roofline=roofline,
            build_seconds=self.build_seconds,
            run_seconds=time.perf_counter() - self.started if self.started else 0.0,
            walls=tuple(wall.name for wall in self.walls if wall.on),
            missing_walls=tuple(f"{wall.name}: {wall.why}" for wall in self.walls if not wall.on),
            device=self.device,
            clock=self.clock if timed else "",
            launches=self.launches,
            state_changes=self.state_changes,
            profile=self.profile if outcome is Outcome.CORRECT else "",
            machine=self.machine or machine_facts().key,
            log=self.log,
        )


def weighted_speedup(subjects: Subjects, results: tuple[WorkloadResult, ...]) -> float | None:
    """Ratio of the calls-weighted total times over the timed workloads, each in the regime that decides.

    None if none was timed.
    """
    reference = candidate = 0.0
    for subject, result in zip(subjects.subjects, results, strict=True):
        if result.decisive is not None:
            reference += subject.workload.calls * result.decisive[0].median
            candidate += subject.workload.calls * result.decisive[1].median
    return reference / candidate if candidate else None


def describe(speedup: float | None, results: tuple[WorkloadResult, ...]) -> str:
    """One sentence: the speedup, and each timed workload's ratio and microseconds."""
    if speedup is None:
        return "all checks passed; no workload is timed"
    parts = [
        _described(result, *result.decisive, speedup=result.speedup)
        for result in results
        if result.decisive is not None and result.speedup is not None
    ]
    return f"correct, {speedup:.2f}x eager: {'; '.join(parts)}"


def _described(result: WorkloadResult, reference: Quantiles, candidate: Quantiles, *, speedup: float) -> str:
    remarks = [f"{reference.median:.4g} -> {candidate.median:.4g} us"]
    if result.graph_speedup is not None:
        remarks[0] += " under graph replay"
        remarks.append(f"{result.eager_speedup:.2f}x called one by one")
    if candidate.p20 > reference.p80 * WIN_MARGIN:
        remarks.append("slower")
    elif not result.clear_win:
        remarks.append("no clear win")
    return f"{result.workload} {speedup:.2f}x ({', '.join(remarks)})"

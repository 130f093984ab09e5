"""What the optimize stage reports: per task and in all."""

from __future__ import annotations

from dataclasses import dataclass

from extractor.families import Family
from optimizer.grafts import GraftRecord
from optimizer.search import Budget, SearchCounts, SearchEnd


@dataclass(frozen=True)
class TaskReport:
    """How one task went. ``best`` is the largest correct speedup (calls-weighted), None if there is none."""

    task_id: str
    label: str
    family: Family
    end: SearchEnd
    counts: SearchCounts
    best: float | None
    grafts: tuple[GraftRecord, ...]
    detail: str = ""


@dataclass(frozen=True)
class OptimizeReport:
    """How the stage went; ``tasks`` are in the order in which they were searched."""

    tasks: tuple[TaskReport, ...]
    machine: str
    budget: Budget
    policy: str
    seconds: float

    @property
    def grafts(self) -> tuple[GraftRecord, ...]:
        """All accepted kernels, in letter order."""
        return tuple(
            record for task in sorted(self.tasks, key=lambda t: t.family.order) for record in task.grafts
        )

    @property
    def judged(self) -> int:
        """Candidates judged by this call."""
        return sum(task.counts.judged for task in self.tasks)

    @property
    def candidates_per_minute(self) -> float | None:
        """Candidates this call judged per minute of its wall-clock time; None if it judged none."""
        return 60.0 * self.judged / self.seconds if self.judged else None

    @property
    def overhead(self) -> float:
        """Share of wall-clock time that was neither the policy nor the judge, 0..1."""
        busy = sum(task.counts.policy_seconds + task.counts.judge_seconds for task in self.tasks)
        return max(0.0, 1.0 - busy / self.seconds) if self.seconds else 0.0

    @property
    def summary(self) -> str:
        """One or two sentences for the end of the stage."""
        fresh = sum(task.counts.turns for task in self.tasks)
        resumed = sum(task.counts.resumed for task in self.tasks)
        reused = sum(task.counts.reused for task in self.tasks)
        kernels = f"{_count(len(self.grafts), 'kernel')} accepted for {_count(len(self.tasks), 'task')}"
        if not fresh:
            return f"{kernels}; all {resumed} turns were already in the store, so nothing was judged again"
        parts = [f"{kernels}; {_count(fresh, 'turn')}, {_count(self.judged, 'candidate')} judged"]
        if self.candidates_per_minute is not None:
            parts.append(f"{self.candidates_per_minute:.0f} a minute")
        if reused:
            parts.append(f"{reused} answered from stored verdicts")
        if resumed:
            parts.append(f"{resumed} turns of earlier runs kept")
        return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"

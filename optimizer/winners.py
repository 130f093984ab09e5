"""Which stored candidates win a task: read verdicts, apply the 1.03 rule, pick few candidates for all workloads.

Every verdict on the task from this machine under these settings counts, whichever policy or seed wrote the
candidate; lineage is the turn that proposed it first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from extractor.task import Task
from optimizer.candidate import Language
from optimizer.grafts import Contender, GraftRecord, choose
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.store import RunStore, SearchKey


@dataclass(frozen=True)
class Best:
    """The fastest correct candidate of a task; ``speedup`` is calls-weighted over the timed workloads."""

    sha: str
    speedup: float
    roofline: float | None


def best_speedup(store: RunStore, key: SearchKey) -> Best | None:
    """The fastest correct, timed candidate on this task, machine and settings; None if there is none."""
    rows = store.query(
        "SELECT sha, speedup, roofline FROM verdicts WHERE op_key = ? AND machine = ? AND settings = ?"
        " AND outcome = ? AND speedup IS NOT NULL ORDER BY speedup DESC, sha LIMIT 1",
        (key.op_key, key.machine, key.settings, Outcome.CORRECT),
    )
    return Best(*rows[0]) if rows else None


def pick_grafts(store: RunStore, task: Task, key: SearchKey) -> tuple[GraftRecord, ...]:
    """The accepted kernels of a task; empty if no candidate is clearly faster than eager on any workload."""
    # What changes the numeric state would change the rest of the model: such a kernel is never grafted.
    verdicts = {
        sha: verdict for sha, verdict in store.correct_verdicts(key).items() if not verdict.state_changes
    }
    calls = {workload.id: workload.calls for workload in task.spec.workloads}  # held-out shapes are not in it
    contenders = [
        Contender(sha, ratios, verdict.speedup or 1.0, _noise(verdict))
        for sha, verdict in verdicts.items()
        if (ratios := _wins(verdict, calls))
    ]
    # Eager's microseconds a step on each workload, as measured beside any candidate.
    cost = {
        result.workload: result.decisive[0].median * calls[result.workload]
        for verdict in verdicts.values()
        for result in verdict.results
        if result.decisive is not None and result.workload in calls
    }
    picked = choose(contenders, weight=lambda workload: cost.get(workload, 1.0))
    return tuple(
        _record(store, task, key, verdicts[winner.sha], winner, workloads) for winner, workloads in picked
    )


def _wins(verdict: Verdict, calls: dict[str, int]) -> dict[str, float]:
    return {
        result.workload: result.speedup
        for result in verdict.results
        if result.workload in calls and result.clear_win and result.speedup is not None
    }


def _noise(verdict: Verdict) -> dict[str, float]:
    return {
        result.workload: result.decisive[1].p80 / result.decisive[1].median - 1.0
        for result in verdict.results
        if result.decisive is not None and result.decisive[1].median > 0
    }


def _record(
    store: RunStore,
    task: Task,
    key: SearchKey,
    verdict: Verdict,
    winner: Contender,
    workloads: tuple[str, ...],
) -> GraftRecord:
    trajectory, turn, policy, language, notes = store.query(
        "SELECT u.trajectory, u.turn, s.policy, s.language, u.notes FROM turns u JOIN searches s ON s.id = u.search"
        " WHERE u.sha = ? AND s.op_key = ? ORDER BY u.created LIMIT 1",
        (winner.sha, key.op_key),
    )[0]
    return GraftRecord(
        task_id=task.id,
        op_key=key.op_key,
        family=task.spec.family,
        language=Language(language),
        candidate_sha=winner.sha,
        source_file=store.source_file(winner.sha, Language(language)),
        workloads=workloads,
        rows={workload: task.spec.workload(workload).rows for workload in workloads},
        ratios={workload: winner.ratios[workload] for workload in workloads},
        speedup=winner.speedup,
        roofline=verdict.roofline,
        trajectory=trajectory,
        turn=turn,
        policy=policy,
        notes=json.loads(notes),
    )

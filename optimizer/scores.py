"""The scores of a search, as pure functions on plain arrays.

Vocabulary. ``Attempts`` are the speedups of one task: one row a trajectory, one entry a turn, ``None`` where the
candidate was not correct (or not timed, or not written). A *rollout* is a trajectory. B_p of task p is the
largest speedup in it, or 1 if there is none (the task is then unsolved). All tasks stay in every denominator.

A row holds a trajectory however short; a trajectory that never began counts as an empty row.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optimizer.store import RunStore

Attempts = Sequence[Sequence[float | None]]

CLEAR_GAIN = 1.10  # the case study's threshold for a rollout


@dataclass(frozen=True)
class TaskScore:
    """One task: B_p, and the case-study statistics over its rollouts."""

    solved: bool
    best: float  # B_p: 1.0 if unsolved
    average: float  # arithmetic mean over rollouts of max(1, the rollout's best)
    clear_rollouts: int  # rollouts whose best exceeds 1.10x
    rollouts: int
    median_rollout: (
        float  # median over rollouts of the rollout's best, 1.0 for one without a correct candidate
    )


@dataclass(frozen=True)
class Scores:
    """A set of tasks. ``raw``, ``metr``, ``best_gm`` and ``avg_gm`` are geometric means, the rest shares 0..1."""

    tasks: int
    raw: float
    metr: float
    best_gm: float
    avg_gm: float
    solved: float
    fast1: float
    fast2: float


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of positive numbers; 1.0 of none."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else 1.0


def best_of(rollout: Iterable[float | None]) -> float | None:
    """The largest speedup of a rollout, ``None`` if no turn of it was correct."""
    correct = [speedup for speedup in rollout if speedup is not None]
    return max(correct) if correct else None


def score_task(attempts: Attempts) -> TaskScore:
    """Score one task.

    >>> score_task([[None, 2.0], [0.5, 0.8], [None, None]]).average  # (2 + 1 + 1) / 3
    1.3333333333333333
    """
    bests = [best_of(rollout) for rollout in attempts]
    correct = [best for best in bests if best is not None]
    return TaskScore(
        solved=bool(correct),
        best=max(correct, default=1.0),
        average=statistics.fmean(max(1.0, best or 1.0) for best in bests) if bests else 1.0,
        clear_rollouts=sum(best > CLEAR_GAIN for best in correct),
        rollouts=len(bests),
        median_rollout=statistics.median(1.0 if best is None else best for best in bests) if bests else 1.0,
    )


def score(tasks: Iterable[Attempts]) -> Scores:
    """Score a set of tasks: RAW, METR, Best GM, Avg GM, Solved, Fast1, Fast2.

    ``best_gm`` is the geometric mean over tasks of the best correct turn of any trajectory floored at 1, the
    counterpart of ``avg_gm``; it equals ``metr``. Fast1 and Fast2 are strict, and an unsolved task's fallback of
    1 does not count.
    """
    scored = [score_task(attempts) for attempts in tasks]
    count = len(scored)
    metr = geometric_mean(max(1.0, task.best) for task in scored)
    return Scores(
        tasks=count,
        raw=geometric_mean(task.best for task in scored),
        metr=metr,
        best_gm=metr,
        avg_gm=geometric_mean(task.average for task in scored),
        solved=_share(sum(task.solved for task in scored), count),
        fast1=_share(sum(task.solved and task.best > 1.0 for task in scored), count),
        fast2=_share(sum(task.solved and task.best > 2.0 for task in scored), count),
    )


def attempts_of(store: RunStore, search: int) -> list[list[float | None]]:
    """The attempts of a stored search: as many rows as trajectories were planned."""
    return all_attempts(store).get(search, [])


def all_attempts(store: RunStore) -> dict[int, list[list[float | None]]]:
    """The attempts of every search in a store, by search id; reads no verdict bodies."""
    found: dict[int, list[list[float | None]]] = {
        search: [[None] * turns for _ in range(trajectories)]
        for search, trajectories, turns in store.query(
            "SELECT id, planned_trajectories, planned_turns FROM searches ORDER BY id"
        )
    }
    for search, trajectory, turn, speedup in store.query(
        "SELECT u.search, u.trajectory, u.turn, v.speedup FROM turns u JOIN verdicts v ON v.id = u.verdict"
        " WHERE u.done = 1 AND v.outcome = 'correct' AND v.speedup IS NOT NULL"
    ):
        found[search][trajectory][turn] = speedup
    return found


def latest_attempts(store: RunStore, leave_out: Collection[str] = ()) -> list[list[list[float | None]]]:
    """The attempts of each task's latest search: what the scores of a run are about.

    Args:
        leave_out: op_keys that do not count. Those of sick tasks (``Health.sick``), unless they are asked for: a
            speedup on a task that a wrong kernel can answer says nothing.
    """
    latest = store.query("SELECT MAX(id), op_key FROM searches GROUP BY op_key ORDER BY 1")
    wanted = {search for search, op_key in latest if op_key not in leave_out}
    return [rows for search, rows in all_attempts(store).items() if search in wanted]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0

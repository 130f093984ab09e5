"""The search of one task: G independent trajectories of up to T turns each.

Trajectories advance round-robin, turn by turn, so that a search that is cut short has tried G first ideas rather
than one idea T times. A turn is: the policy writes, the answer is parsed, the candidate is judged (or its verdict
is found in the store), everything is stored. Nothing about a search lives outside the store, so calling
:func:`search_task` again continues where it was stopped.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from extractor.errors import UsageError
from extractor.progress import Progress
from optimizer.answers import Answer, clean_text, parse
from optimizer.candidate import Candidate
from optimizer.conversation import Briefing
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.policies.protocol import Completion, Policy, StopReason, Turn
from optimizer.store import RunStore, SearchKey, Trajectory, TrajectoryState

MAX_SANDBOX_FAILURES = 3  # in a row; then the judge, not the candidates, is the problem


class Evaluator(Protocol):
    """What the search needs of a judge."""

    def evaluate(self, candidate: Candidate) -> Verdict:
        """Judge one candidate. Failures of the candidate are verdicts, never exceptions."""


class BadBudget(UsageError):
    """A budget that is not GxT."""

    template = "budget {text!r} is not of the form GxT with both at least 1, such as 4x4 or 16x4"


@dataclass(frozen=True)
class Budget:
    """G trajectories of up to T turns for every task.

    >>> Budget.parse("16x4")
    Budget(trajectories=16, turns=4)
    """

    trajectories: int
    turns: int

    def __post_init__(self) -> None:
        if self.trajectories < 1 or self.turns < 1:
            raise BadBudget(text=str(self))

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``GxT``. Raises BadBudget."""
        match = re.fullmatch(r"(\d{1,6})[xX×](\d{1,6})", text.strip())
        if match is None or min(int(match[1]), int(match[2])) < 1:
            raise BadBudget(text=text)
        return cls(int(match[1]), int(match[2]))

    @property
    def total(self) -> int:
        """The most candidates one task can cost."""
        return self.trajectories * self.turns

    def __str__(self) -> str:
        return f"{self.trajectories}x{self.turns}"


class SearchEnd(StrEnum):
    """Why the search of a task ended."""

    BUDGET = "budget"  # every trajectory used its turns
    EXHAUSTED = "exhausted"  # the policy had nothing more to propose in any trajectory
    UNWRITABLE = "unwritable"  # the policy proposed nothing at all for this task
    ROOFLINE = "roofline"  # a candidate reached the stated share of the roofline
    POLICY_FAILED = "policy_failed"  # the policy failed for good in some trajectory; resume tries again
    JUDGE_FAILED = "judge_failed"  # the judge could not do its work several times in a row; resume goes on


@dataclass
class SearchCounts:
    """What one call of :func:`search_task` did; seconds are wall-clock."""

    turns: int = 0  # finished by this call
    resumed: int = 0  # finished by earlier calls
    judged: int = 0
    reused: int = 0  # answered from the verdict cache
    unparsed: int = 0
    policy_seconds: float = 0.0
    judge_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class SearchResult:
    """How the search of a task went. ``detail`` says more about a failure."""

    search: int
    end: SearchEnd
    counts: SearchCounts
    detail: str = ""


@dataclass
class _Rollout:
    """A trajectory in progress. ``turns`` is filled only where it goes on."""

    index: int
    state: TrajectoryState
    length: int
    turns: tuple[Turn, ...] = ()
    pending: Trajectory | None = None


@dataclass
class _Search:
    store: RunStore
    search: int
    key: SearchKey
    briefing: Briefing
    policy: Policy
    evaluator: Evaluator
    progress: Progress
    stop_at: float | None
    counts: SearchCounts = field(default_factory=SearchCounts)
    sandbox_failures: int = 0
    best: float = 0.0
    roofline: float = 0.0
    detail: str = ""


def search_task(
    store: RunStore,
    briefing: Briefing,
    key: SearchKey,
    *,
    policy: Policy,
    evaluator: Evaluator,
    budget: Budget,
    progress: Progress,
    settings_json: str = "{}",
    stop_at: float | None = None,
) -> SearchResult:
    """Run, or continue, the search of one task until its budget is used.

    Args:
        stop_at: end early once a correct candidate reaches this share (0..1) of the roofline.

    Raises:
        CorruptStore, RunUnwritable: the store failed; what was stored before is intact.
    """
    began = time.perf_counter()
    task = briefing.task
    search = store.search(
        task, key, trajectories=budget.trajectories, turns=budget.turns, settings_json=settings_json
    )
    run = _Search(store, search, key, briefing, policy, evaluator, progress, stop_at)
    rollouts = _load(run, budget)
    end = _advance_all(run, rollouts, budget)
    run.counts.seconds = time.perf_counter() - began
    progress.advance(task.spec.label, budget.total - run.counts.turns - run.counts.resumed)
    return SearchResult(search, end, run.counts, run.detail)


def turn_seed(run_seed: int, op_key: str, trajectory: int, turn: int) -> int:
    """The seed of one turn, 0 <= seed < 2**31, the same on every machine and in every resumed run."""
    digest = hashlib.sha256(f"{run_seed}/{op_key}/{trajectory}/{turn}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _load(run: _Search, budget: Budget) -> list[_Rollout]:
    rollouts = []
    for stored in run.store.trajectories(run.search)[: budget.trajectories]:
        rollout = _Rollout(stored.index, stored.state, stored.turns)
        run.counts.resumed += min(stored.turns, budget.turns)
        if stored.turns < budget.turns and stored.state is not TrajectoryState.EXHAUSTED:
            rollout.turns = run.store.turns(run.search, stored.index)
            rollout.pending = stored if stored.pending is not None else None
            if stored.state is TrajectoryState.FAILED:
                run.store.end_trajectory(run.search, stored.index, TrajectoryState.OPEN)
                rollout.state = TrajectoryState.OPEN
        rollouts.append(rollout)
    ((best, roofline),) = run.store.query(
        "SELECT max(v.speedup), max(v.roofline) FROM turns u JOIN verdicts v ON v.id = u.verdict"
        " WHERE u.search = ? AND v.outcome = ?",
        (run.search, Outcome.CORRECT),
    )
    run.best, run.roofline = best or 0.0, roofline or 0.0
    if run.counts.resumed:
        run.progress.advance(run.briefing.task.spec.label, run.counts.resumed)
    return rollouts


def _advance_all(run: _Search, rollouts: list[_Rollout], budget: Budget) -> SearchEnd:
    for turn in range(budget.turns):
        for rollout in rollouts:
            if _reached(run):
                return SearchEnd.ROOFLINE
            if rollout.length > turn or rollout.state is not TrajectoryState.OPEN:
                continue
            _take_turn(run, rollout)
            if run.sandbox_failures >= MAX_SANDBOX_FAILURES:
                return SearchEnd.JUDGE_FAILED
    if _reached(run):
        return SearchEnd.ROOFLINE
    states = {rollout.state for rollout in rollouts}
    if TrajectoryState.FAILED in states:
        return SearchEnd.POLICY_FAILED
    if states == {TrajectoryState.EXHAUSTED}:
        return SearchEnd.EXHAUSTED if any(rollout.length for rollout in rollouts) else SearchEnd.UNWRITABLE
    return SearchEnd.BUDGET


def _reached(run: _Search) -> bool:
    return run.stop_at is not None and run.roofline >= run.stop_at


def _take_turn(run: _Search, rollout: _Rollout) -> None:
    """One turn of one trajectory, stored step by step."""
    if rollout.pending is not None:
        candidate, summary = rollout.pending.pending, rollout.pending.pending_summary
        rollout.pending = None
    else:
        answer = _ask(run, rollout)
        if answer is None:
            return
        candidate, summary = answer.candidate, answer.summary or answer.failure
    verdict = None if candidate is None else _judge(run, rollout, candidate)
    rollout.turns = (*rollout.turns, Turn(rollout.length, candidate, verdict, summary))
    rollout.length += 1
    run.counts.turns += 1
    run.progress.advance(_note(run, rollout, verdict))


def _ask(run: _Search, rollout: _Rollout) -> Answer | None:
    """The policy's answer, stored; None if the trajectory ends instead."""
    seed = turn_seed(run.key.seed, run.key.op_key, rollout.index, rollout.length)
    began = time.perf_counter()
    completion = run.policy.complete(run.briefing.conversation(rollout.index, rollout.turns), seed=seed)
    seconds = time.perf_counter() - began
    run.counts.policy_seconds += seconds
    completion = replace(completion, text=clean_text(completion.text))
    if completion.stop_reason is StopReason.EXHAUSTED:
        _end(run, rollout, TrajectoryState.EXHAUSTED, completion)
        return None
    failed = completion.stop_reason is StopReason.ERROR
    answer = (
        Answer(None, failure=completion.text or "the policy failed")
        if failed
        else parse(completion, run.key.language)
    )
    run.store.record_completion(
        run.search,
        rollout.index,
        rollout.length,
        completion,
        seed=seed,
        seconds=seconds,
        candidate=answer.candidate,
        failure=answer.failure,
        summary=answer.summary,
    )
    if failed:
        _end(run, rollout, TrajectoryState.FAILED, completion)
        return None
    run.counts.unparsed += answer.candidate is None
    return answer


def _end(run: _Search, rollout: _Rollout, state: TrajectoryState, completion: Completion) -> None:
    detail = " ".join(completion.text.split())[:300]
    run.store.end_trajectory(run.search, rollout.index, state, detail)
    rollout.state = state
    run.detail = detail or run.detail


def _judge(run: _Search, rollout: _Rollout, candidate: Candidate) -> Verdict:
    """The verdict on a candidate, from the store if it was ever judged before, and stored with the turn."""
    where = (run.search, rollout.index, rollout.length)
    known = run.store.known_verdict(run.key, candidate.sha)
    if known is not None:
        run.store.reuse_verdict(*where, known[0])
        run.counts.reused += 1
        verdict = known[1]
    else:
        began = time.perf_counter()
        verdict = run.evaluator.evaluate(candidate)
        if verdict.outcome is Outcome.SANDBOX_FAILED:
            verdict = run.evaluator.evaluate(candidate)
        seconds = time.perf_counter() - began
        run.store.record_verdict(*where, run.key, candidate, verdict, seconds=seconds)
        run.counts.judged += 1
        run.counts.judge_seconds += seconds
    if verdict.outcome is Outcome.SANDBOX_FAILED:
        run.sandbox_failures += 1
        run.detail = verdict.reason
    else:
        run.sandbox_failures = 0
    return verdict


def _note(run: _Search, rollout: _Rollout, verdict: Verdict | None) -> str:
    """One line of progress; a new best is also announced."""
    label = run.briefing.task.spec.label
    if verdict is None:
        return f"{label}: no kernel in the answer"
    if not verdict.correct or verdict.speedup is None:
        return f"{label}: {verdict.outcome.value.replace('_', ' ')}"
    run.roofline = max(run.roofline, verdict.roofline or 0.0)
    if verdict.speedup > run.best:
        run.best = verdict.speedup
        place = f"trajectory {rollout.index}, turn {rollout.length - 1}"
        run.progress.message(f"{label}: best {verdict.speedup:.2f}x ({place})")
    return f"{label}: {verdict.speedup:.2f}x, best {run.best:.2f}x"

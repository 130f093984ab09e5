"""The embedded default policy: derives what a task computes, ranks plans, and revises them on feedback.

Stateless: everything it knows of earlier turns it reads from the conversation. Plans are ranked by measured
neighbours. Trajectory ``t`` starts at rank ``t`` and afterwards moves among ranks congruent to ``t`` modulo four,
so that a 4x4 search tries sixteen different plans where the space allows. Each later turn takes the plan whose
prediction, corrected by what the trajectory has measured on similar plans, is highest; every fourth turn puts
together the best schedule seen for each M; a failed verdict rules its body out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from extractor.schema import Phase, Workload
from optimizer.candidate import Language
from optimizer.judge.verdict import Outcome
from optimizer.machine import MachineFacts
from optimizer.policies.catalog.knobs import Knobs
from optimizer.policies.catalog.plans import (
    Plan,
    bodies_for,
    choices,
    features,
    kind_of,
    render,
    slot_of,
    slots_of,
)
from optimizer.policies.catalog.ranking import Prior, Ranker, Slot, knob_key
from optimizer.policies.catalog.semantics import Semantics, explain
from optimizer.policies.protocol import Completion, Conversation, StopReason, Turn

LANES_OF_SEARCH = 4  # trajectories that never share a schedule
COMBINE_EVERY = 4  # turns
_BLAMED = {
    Outcome.REFUSED,
    Outcome.BUILD_FAILED,
    Outcome.CRASHED,
    Outcome.HUNG,
    Outcome.UNSUPPORTED,
    Outcome.WRONG,
}


@dataclass(frozen=True)
class _Seen:
    """One earlier plan of this trajectory and the log speedup of each slot, where it was timed."""

    plan: Plan
    outcome: Outcome | None
    gains: dict[int, float]


class CatalogPolicy:
    """Implements :class:`optimizer.policies.protocol.Policy`.

    ``prior`` defaults to the shipped one. Raises PriorUnreadable if that is damaged.
    """

    name = "catalog"

    def __init__(self, machine: MachineFacts, prior: Prior | None = None) -> None:
        self._machine = machine
        self._prior = Prior.load() if prior is None else prior

    def complete(self, conversation: Conversation, *, seed: int) -> Completion:
        """The next candidate of this trajectory. ``seed`` changes nothing: the catalog draws no lots."""
        if conversation.language is not Language.CPP:
            return _nothing(f"The catalog writes C++ only, not {conversation.language.value}.")
        spec = conversation.task.spec
        semantics, why = explain(spec)
        if semantics is None:
            return _nothing(f"No template covers this operator ({why}).")
        timed = _timed(conversation)
        desk = _Desk(semantics, timed, bodies_for(semantics, self._machine.isa), self._prior)
        seen = [item for turn in conversation.turns if (item := _read(turn, semantics, timed)) is not None]
        plan, reason = desk.next_plan(conversation.trajectory, conversation.turn, seen)
        if plan is None:
            return _nothing("Every plan of this trajectory has been tried.")
        source = render(spec, semantics, plan)
        return Completion(text=f"{reason}\n\n```cpp\n{source}```\n", notes=plan.notes)


class _Desk:
    """Plans of one task, ranked; built anew for every completion."""

    def __init__(
        self, semantics: Semantics, timed: tuple[Workload, ...], bodies: Sequence[str], prior: Prior
    ) -> None:
        self.kind, self.bodies = kind_of(semantics), tuple(bodies)
        self.slots = slots_of(semantics, timed)
        self.ranked: dict[int, list[tuple[float, str, Knobs]]] = {}
        self.measured = False
        for slot in self.slots:
            place = Slot(self.kind, semantics.dtype, features(semantics, slot, timed), max(slot, 1))
            ranker = Ranker(prior, place)
            self.measured = self.measured or bool(ranker.neighbours)
            options = [
                (ranker.predict(body, knobs), body, knobs)
                for body in self.bodies
                for knobs in choices(semantics, slot, body)
            ]
            self.ranked[slot] = sorted(
                options, key=lambda option: (-option[0], knob_key(option[1], option[2]))
            )

    def next_plan(self, trajectory: int, turn: int, seen: Sequence[_Seen]) -> tuple[Plan | None, str]:
        """The plan of this turn and one paragraph why, or ``(None, "")``."""
        banned = {item.plan.body for item in seen if item.outcome in _BLAMED}
        bodies = [body for body in self.bodies if body not in banned]
        tried = {item.plan for item in seen}
        if turn % COMBINE_EVERY == COMBINE_EVERY - 1 and len(self.slots) > 1:
            combined = self._combined(bodies, seen)
            if combined is not None and combined not in tried:
                return combined, "This puts together the schedules that were fastest for each M so far."
        best: tuple[float, Plan] | None = None
        for body in bodies:
            scored = self._proposal(body, trajectory, seen)
            if scored is not None and (best is None or scored[0] > best[0]):
                best = scored
        if best is None or best[1] in tried:
            return None, ""
        return best[1], self._reason(best[1], turn, seen, banned)

    def _proposal(self, body: str, trajectory: int, seen: Sequence[_Seen]) -> tuple[float, Plan] | None:
        """The most promising untried schedule of every slot, all with one body."""
        total = 0.0
        schedules: list[tuple[int, Knobs]] = []
        fresh = False
        for slot in self.slots:
            options = self._lane(slot, body, trajectory)
            used = {dict(item.plan.schedules)[slot] for item in seen if item.plan.body == body}
            open_ = [option for option in options if option[1] not in used]
            fresh = fresh or bool(open_)
            pool = open_ or options
            if not pool:
                return None
            score, knobs = max(
                ((self._corrected(slot, body, knobs, guess, seen), knobs) for guess, knobs in pool),
                key=lambda item: item[0],
            )
            total += score
            schedules.append((slot, knobs))
        return (total, Plan(self.kind, body, tuple(schedules))) if fresh else None

    def _lane(self, slot: int, body: str, trajectory: int) -> list[tuple[float, Knobs]]:
        """This trajectory's share of a slot's ranked schedules, from its starting rank on."""
        return [
            (guess, knobs)
            for rank, (guess, owner, knobs) in enumerate(self.ranked[slot])
            if owner == body and rank >= trajectory and rank % LANES_OF_SEARCH == trajectory % LANES_OF_SEARCH
        ]

    def _corrected(self, slot: int, body: str, knobs: Knobs, guess: float, seen: Sequence[_Seen]) -> float:
        """The prior guess plus what similar measured schedules were better or worse than theirs."""
        guesses = {(owner, known): value for value, owner, known in self.ranked[slot]}
        measured = [
            (item.plan.body, dict(item.plan.schedules)[slot], item.gains[slot])
            for item in seen
            if slot in item.gains
        ]
        if not measured:
            return guess
        surprises = [
            (owner, known, gain - guesses.get((owner, known), 0.0)) for owner, known, gain in measured
        ]
        level = sum(surprise for _, _, surprise in surprises) / len(surprises)
        weight = correction = 0.0
        for owner, known, surprise in surprises:
            likeness = 0.5 ** _differences(knob_key(owner, known), knob_key(body, knobs))
            weight += likeness
            correction += likeness * (surprise - level)
        return guess + correction / (weight + 0.5)

    def _combined(self, bodies: Sequence[str], seen: Sequence[_Seen]) -> Plan | None:
        best: tuple[float, Plan] | None = None
        for body in bodies:
            total, schedules = 0.0, []
            for slot in self.slots:
                found = [
                    (item.gains[slot], dict(item.plan.schedules)[slot])
                    for item in seen
                    if item.plan.body == body and slot in item.gains
                ]
                if not found:
                    break
                gain, knobs = max(found, key=lambda item: item[0])
                total += gain
                schedules.append((slot, knobs))
            else:
                if best is None or total > best[0]:
                    best = (total, Plan(self.kind, body, tuple(schedules)))
        return None if best is None else best[1]

    def _reason(self, plan: Plan, turn: int, seen: Sequence[_Seen], banned: set[str]) -> str:
        basis = "measured neighbours" if self.measured else "a rule of thumb: nothing near was measured"
        if turn == 0 or not seen:
            return f"The {plan.kind} template with the {plan.body} body, ranked by {basis}."
        if seen[-1].outcome in _BLAMED and banned:
            return f"The {seen[-1].plan.body} body failed; the same operator with the {plan.body} body."
        return (
            f"The {plan.kind} template with the {plan.body} body: the most promising schedule not tried yet, "
            f"by {basis} and by how this trajectory's earlier schedules compared with their predictions."
        )


def _differences(one: str, other: str) -> int:
    return sum(a != b for a, b in zip(one.split(), other.split(), strict=True))


def _timed(conversation: Conversation) -> tuple[Workload, ...]:
    """The workloads the score is about: those named, else all decode workloads, else all."""
    workloads = conversation.task.spec.workloads
    named = tuple(w for w in workloads if w.id in conversation.timed_workloads)
    decode = tuple(w for w in workloads if w.phase is Phase.DECODE)
    return named or decode or workloads


def _read(turn: Turn, semantics: Semantics, timed: tuple[Workload, ...]) -> _Seen | None:
    """What an earlier turn tells; ``None`` if its candidate is not the catalog's."""
    plan = Plan.parse(turn.candidate.source) if turn.candidate is not None else None
    if plan is None or plan.kind != kind_of(semantics):
        return None
    gains: dict[int, list[float]] = {}
    if turn.verdict is not None and turn.verdict.correct:
        workloads = {workload.id: workload for workload in timed}
        for result in turn.verdict.results:
            if result.workload in workloads and result.speedup is not None and result.speedup > 0:
                slot = slot_of(semantics, workloads[result.workload])
                gains.setdefault(slot, []).append(math.log(result.speedup))
    means = {slot: sum(values) / len(values) for slot, values in gains.items()}
    return _Seen(plan, None if turn.verdict is None else turn.verdict.outcome, means)


def _nothing(text: str) -> Completion:
    return Completion(text=text, stop_reason=StopReason.EXHAUSTED)

"""The arithmetic and the refusals of timing, with a worker that is a script."""

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from optimizer.judge import wire
from optimizer.judge.device import timing
from optimizer.judge.device.timing import DeviceTimer
from optimizer.judge.remote import CandidateFault, Run
from optimizer.judge.verdict import Outcome, WorkloadResult

SLOTS = 4


class ScriptedWorker:
    """Answers every command after a stated time; RUN and REPLAY do what ``work`` says."""

    def __init__(self, wall_us: float, events_us: float, work: Any = lambda: None) -> None:
        self.wall_us, self.events_us, self.work = wall_us, events_us, work
        self.commands: list[tuple[int, int, int]] = []

    def command(
        self, action: int, first: int = 0, second: int = 0, third: int = 0, *, limit_s: float, doing: str
    ) -> Run:
        self.commands.append((action, second, third))
        calls = {wire.RUN: third, wire.REPLAY: SLOTS}.get(action, 0)
        if calls:
            self.work()
        text = json.dumps({"events_us": [self.events_us] * SLOTS} if action == wire.TIME else {})
        return Run(wire.OK, 0, 0, int(calls * self.wall_us * 1000) + 50_000, 0, text)

    def told(self, run: Run, doing: str) -> dict[str, Any]:
        return json.loads(run.text)


class Refresher:
    """Fresh inputs; counts those drawn wholly anew."""

    recurs = True

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self.audits = 0
        self.audited = False

    def refresh(self, dice: random.Random) -> None:
        self._memory.fill_(dice.random())
        self.audited = False

    def unseen(self, dice: random.Random, slots: int) -> float:
        self.refresh(dice)
        self.audits += 1
        self.audited = True
        return 1.0


class NeverWrong:
    def problem(self, got: torch.Tensor, expected: torch.Tensor) -> str:
        return "" if torch.equal(got, expected) else "it differs"


class FakeStage:
    def wall(self, into: list[float]) -> Any:
        class Wall:
            def __enter__(self) -> None: ...

            def __exit__(self, *_: object) -> None:
                into.append(10.0 * SLOTS)

        return Wall()

    def nudge(self) -> None: ...

    def replay(self, region: int, calls: Any) -> list[object]:
        return [call() for call in calls]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    memory = torch.zeros(SLOTS * 8)
    outputs = torch.zeros(SLOTS, 8)
    region = SimpleNamespace(slots=SLOTS, base=0, end=SLOTS * 8)
    side = SimpleNamespace(timing=region)
    subject = SimpleNamespace(
        id="decode",
        eager_seconds=1e-5,
        inputs=side,
        outputs=side,
        allowances=(NeverWrong(),),
        refresher=Refresher(memory),
    )
    subjects = SimpleNamespace(
        copies=1,
        dice=random.Random(1),
        models=[lambda x: x * 2],
        inputs=SimpleNamespace(
            bytes=memory.view(torch.uint8), slot=lambda region, slot: [memory[8 * slot : 8 * slot + 8]]
        ),
        outputs=SimpleNamespace(
            poison_outputs=lambda region: None, stacked=lambda region, number: outputs.clone()
        ),
    )
    region.end = memory.numel() * 4
    checker = SimpleNamespace(
        deadline=SimpleNamespace(left=1.0),
        settings=SimpleNamespace(timing_seconds=0.0),
        control_kept=lambda run, place: None,
    )

    def right() -> None:
        outputs.copy_(memory.view(SLOTS, 8) * 2)

    def timer(worker: ScriptedWorker) -> DeviceTimer:
        made: Any = DeviceTimer
        return made(subjects, checker, worker, FakeStage(), empty_ns=50_000)

    return SimpleNamespace(subject=subject, memory=memory, right=right, timer=timer)


def test_both_regimes_are_read_from_outside(parts: SimpleNamespace):
    worker = ScriptedWorker(wall_us=5.0, events_us=5.0, work=parts.right)
    timed = parts.timer(worker).time(0, parts.subject)
    assert timed.candidate.median == pytest.approx(5.0)
    assert timed.reference.median == pytest.approx(10.0)
    assert timed.graph_candidate is not None
    assert timed.graph_candidate.median == pytest.approx(5.0)
    assert len(timed.candidate.samples) == 2 * timing.MIN_CYCLES
    assert timed.fastest == pytest.approx(5.0)


def test_event_times_far_below_the_outside_clock_are_a_lie(parts: SimpleNamespace):
    worker = ScriptedWorker(wall_us=50.0, events_us=1.0, work=parts.right)
    with pytest.raises(CandidateFault, match="clocks disagree") as caught:
        parts.timer(worker).time(0, parts.subject)
    assert caught.value.outcome is Outcome.IMPLAUSIBLE


def test_stale_outputs_of_a_timed_call_are_wrong(parts: SimpleNamespace):
    with pytest.raises(CandidateFault, match="a timed call on fresh inputs") as caught:
        parts.timer(ScriptedWorker(5.0, 5.0)).time(0, parts.subject)
    assert caught.value.outcome is Outcome.WRONG


def test_inputs_changed_in_a_timed_call_are_wrong(parts: SimpleNamespace):
    def meddle() -> None:
        parts.right()
        parts.memory[0] += 1.0

    with pytest.raises(CandidateFault, match=r"changes its inputs|a timed call"):
        parts.timer(ScriptedWorker(5.0, 5.0, meddle)).time(0, parts.subject)


def test_inputs_are_drawn_anew_between_replays(parts: SimpleNamespace):
    """A kernel that remembers what it has computed must find nothing that it could skip."""
    seen: list[float] = []

    def work() -> None:
        parts.right()
        seen.append(float(parts.memory[0]))

    worker = ScriptedWorker(5.0, 5.0, work)
    parts.timer(worker).time(0, parts.subject)
    replayed = [
        value for value, command in zip(seen, _working(worker), strict=True) if command == wire.REPLAY
    ]
    assert len(replayed) > timing.MIN_CYCLES
    assert len(set(replayed[1:])) == len(replayed[1:])  # the first one captures


def test_nothing_of_the_candidate_runs_between_fresh_inputs_and_the_clock(parts: SimpleNamespace):
    """A call to wake the device on the inputs about to be timed could compute all their answers."""
    worker = ScriptedWorker(5.0, 5.0, parts.right)
    parts.timer(worker).time(0, parts.subject)
    commands = [action for action, _, _ in worker.commands]
    for position, action in enumerate(commands):
        if action == wire.RUN:
            assert commands[position - 1] == wire.WAKE


def test_every_regime_is_audited_and_what_is_slower_on_unseen_inputs_is_a_lookup(parts: SimpleNamespace):
    refresher = parts.subject.refresher
    parts.timer(ScriptedWorker(5.0, 5.0, parts.right)).time(0, parts.subject)
    assert refresher.audits == 2

    class LooksUp(ScriptedWorker):
        def command(self, action: int, *rest: Any, **named: Any) -> Run:
            self.wall_us = 50.0 if refresher.audited else 5.0
            return super().command(action, *rest, **named)

    with pytest.raises(CandidateFault, match=r"10\.0 times slower on inputs it has never seen") as caught:
        parts.timer(LooksUp(5.0, 5.0, parts.right)).time(0, parts.subject)
    assert caught.value.outcome is Outcome.IMPLAUSIBLE


def test_what_cannot_be_captured_wins_nothing(parts: SimpleNamespace):
    class Uncapturable(ScriptedWorker):
        def command(self, action: int, *rest: Any, **named: Any) -> Run:
            run = super().command(action, *rest, **named)
            if action != wire.REPLAY:
                return run
            return run._replace(status=wire.NOT_CAPTURABLE, text='{"error": "stream\\nunjoined"}')

    timed = parts.timer(Uncapturable(5.0, 5.0, parts.right)).time(0, parts.subject)
    assert timed.graph_candidate is None
    assert timed.remark == "it cannot be captured into a CUDA graph: stream unjoined"
    sides = {"reference": timed.reference, "candidate": timed.candidate}
    result = WorkloadResult(workload="decode", graph_reference=timed.graph_reference, **sides)
    assert result.speedup == pytest.approx(2.0)
    assert not result.clear_win


@pytest.mark.parametrize("claimed", [None, "5", [1, "x"], [float("nan")], [True, {}]])
def test_claims_that_are_no_times_are_none(claimed: object):
    assert timing._numbers(claimed) == []


def _working(worker: ScriptedWorker) -> list[int]:
    return [
        action
        for action, _, third in worker.commands
        if action == wire.REPLAY or (action == wire.RUN and third)
    ]


def test_an_eager_batch_takes_as_many_slots_as_it_needs():
    assert timing.eager_slots(512, copies=4, seconds=1e-4) == 50
    assert timing.eager_slots(512, copies=64, seconds=1.0) == 64
    assert timing.eager_slots(20, copies=1, seconds=1e-6) == 20

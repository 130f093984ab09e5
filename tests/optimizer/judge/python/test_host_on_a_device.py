"""What a worker on a GPU is asked to do, done here: the host with a stage that stands in for the device."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from extractor.kernelbench import import_kernelbench
from extractor.laws import torch_dtype
from optimizer.candidate import Candidate, Language
from optimizer.judge import wire
from optimizer.judge.corpus import corpus_folder
from optimizer.judge.isolation.walls import WallPlan
from optimizer.judge.judge import Judge, JudgeSettings
from optimizer.judge.python.host import MODULE_NAME, Host, _carry_out
from optimizer.judge.python.launches import Ledger
from optimizer.judge.python.plan import worker_plan
from optimizer.judge.subjects import Subjects
from optimizer.languages.abi import ITEM_BYTES

SOURCE = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(64, 48, bias=False)
    def forward(self, x):
        return self.proj(x)
"""
TIMED = 1  # region of the first subject's timed slots


class Stage:
    """A device that does everything at once, and writes down what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def synchronize(self) -> None:
        self.asked.append("synchronize")

    def nudge(self) -> None:
        self.asked.append("nudge")

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.asked.append("copy")
        target.copy_(source)

    def poison(self, size: int) -> None:
        self.asked.append("poison")

    def overrun(self, output: torch.Tensor) -> bool:
        return False

    def events(self, count: int, calls: Sequence[Callable[[], object]] = ()) -> list[float]:
        return [1.0 for call in calls if call() is not None]

    def replay(self, region: int, calls: Sequence[Callable[[], object]]) -> list[object]:
        return [call() for call in calls]

    def forget(self) -> None:
        self.asked.append("forget")

    def profile(self, calls: Sequence[Callable[[], object]]) -> list[tuple[str, int, float]]:
        return [("kernel", sum(call() is not None for call in calls), 1.0)]


class ArenaMemory:
    """The judge's arenas, in its own process."""

    def __init__(self, subjects: Subjects) -> None:
        self._arenas = {"inputs": subjects.inputs, "weights": subjects.weights, "outputs": subjects.outputs}

    def tensor(self, kind: str, abi: Sequence[Any], base: int) -> torch.Tensor:
        shape, stride, dtype, offset = abi
        typed = self._arenas[kind].bytes.view(torch_dtype(dtype))
        return torch.as_strided(typed, shape, stride, (base + offset) // ITEM_BYTES[dtype])


@pytest.fixture
def subjects(tmp_path: Path) -> Iterator[Subjects]:
    task = import_kernelbench(corpus_folder() / "tasks" / "linear.py", tmp_path)
    with Judge(task, JudgeSettings()) as judge:
        yield judge.subjects
    sys.modules.pop(MODULE_NAME, None)


def test_every_command_of_a_device_is_carried_out(subjects: Subjects):
    stage = Stage()
    walls = WallPlan(read=(), write=(), syscalls="device")
    candidate = Candidate(Language.TRITON, SOURCE)
    plan = worker_plan(subjects, JudgeSettings(), candidate, walls, interpret=False, memory_cap=0)
    host = Host(plan, ArenaMemory(subjects), stage, Ledger())

    def ask(action: int, first: int = 0, second: int = 0, third: int = 0) -> dict[str, Any]:
        answer = _carry_out(host, action, first, second, third)
        assert answer.status == wire.OK, answer.text
        said: dict[str, Any] = json.loads(answer.text)
        return said

    ask(wire.LOAD)
    for copy in range(subjects.copies):
        ask(wire.PACK, copy, copy)
    subject = subjects.subjects[0]
    assert subject.outputs.timing is not None
    assert subject.inputs.timing is not None
    slots = subject.outputs.timing.slots
    for action in (wire.RUN, wire.REPLAY):
        subjects.refresh(subject)
        subjects.outputs.poison_outputs(subject.outputs.timing)
        ask(wire.WAKE)
        ask(action, TIMED, 0, slots)
        assert stage.asked.count("nudge") == 1
        ask(wire.PUBLISH, TIMED, 0, slots)
        assert stage.asked.count("copy") == slots
        for slot in range(0, slots, 37):
            (x,) = subjects.inputs.slot(subject.inputs.timing, slot)
            (got,) = subjects.outputs.slot(subject.outputs.timing, slot)
            torch.testing.assert_close(got, subjects.models[slot % subjects.copies](x))
        stage.asked.clear()
    assert len(ask(wire.TIME, TIMED)["events_us"]) == slots
    ask(wire.KNOCK_OUT, 1)
    ask(wire.RUN, 0, 0, 1)
    assert "poison" in stage.asked  # checked calls are made with spoilt memory, timed ones are not
    assert ask(wire.PROFILE, TIMED)["kernels"] == [["kernel", slots, 1.0]]

"""A task folder, a policy and a judge that cost nothing: what the search's own tests run on."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from extractor.families import Family
from extractor.run_folder import RunFolder, RunManifest, make_folder
from extractor.schema import (
    Health,
    Phase,
    Site,
    TaskSpec,
    TensorSpec,
    WeightSource,
    WeightSpec,
    Workload,
)
from extractor.task import TASK_SIDECAR, TASK_SOURCE, Task
from optimizer.candidate import Candidate
from optimizer.judge.verdict import Outcome, Quantiles, Verdict, WorkloadResult
from optimizer.optimize import Machine
from optimizer.policies.protocol import Completion, Conversation, StopReason

MACHINE = Machine("fake-machine", "one fake core")
SOURCE = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"


def workload(name: str, phase: Phase, rows: int, share: float | None, calls: int = 2) -> Workload:
    tensor = TensorSpec(name="x", shape=(rows, 8), stride=(8, 1), dtype="bfloat16")
    return Workload(
        id=name,
        phase=phase,
        batch=rows,
        rows=rows,
        cache_len=64,
        inputs=(tensor,),
        outputs=(tensor.model_copy(update={"name": "out0"}),),
        calls=calls,
        share=share,
        exact_key=hashlib.sha1(name.encode()).hexdigest(),
    )


def make_task(
    tasks_dir: Path, family: Family = Family.SILU_GATE, share: float = 0.1, key: str = "", batches: int = 2
) -> Task:
    """Write a small task folder and load it."""
    op_key = hashlib.sha1(f"{family}{key}".encode()).hexdigest()
    decode = [workload(f"decode-b{b}", Phase.DECODE, b, share) for b in (1, 4)[:batches]]
    spec = TaskSpec(
        task_id=f"{family.value}-{op_key[:10]}",
        family=family,
        op_key=op_key,
        dtype="bfloat16",
        weights=(WeightSpec(attribute="weight", shape=(8,), dtype="bfloat16"),),
        workloads=(*decode, workload("prefill-b1-s32", Phase.PREFILL, 32, share)),
        sites=(Site(name="model.layers.0.mlp", owner="MLP", source="modeling.py:1"),),
        ops=(),
        output_refs=("x",),
        health=Health(bit_exact=True),
        weight_source=WeightSource(model="preset:fake"),
        attention="eager",
        versions={},
    )
    folder = tasks_dir / spec.task_id
    make_folder(folder)
    (folder / TASK_SOURCE).write_text(SOURCE, encoding="utf-8")
    (folder / TASK_SIDECAR).write_text(spec.model_dump_json(), encoding="utf-8")
    return Task.load(folder)


def make_run(path: Path, families: tuple[Family, ...] = (Family.SILU_GATE,)) -> RunFolder:
    """A run folder with one small task a family; the first has the largest share."""
    run = RunFolder(path).create(
        RunManifest(
            model="preset:fake",
            dtype="bfloat16",
            device="cpu",
            attention="eager",
            batches=(1, 4),
            prompt=32,
            tokens=32,
            created="2026-01-01T00:00:00Z",
        )
    )
    for position, family in enumerate(families):
        make_task(run.tasks_dir, family, share=0.5 / (position + 1))
    return run


def kernel(speed: float, tag: str = "") -> str:
    """Source whose fake verdict is its speed; a speed of 0 does not compile, a negative one is wrong."""
    return f"// speed {speed} {tag}\nint kg_forward();\n"


@dataclass
class FakePolicy:
    """Answers from a table: ``answers[trajectory][turn]``; beyond it, EXHAUSTED."""

    answers: list[list[str]]
    name: str = "fake"
    asked: list[tuple[int, int, int]] = field(default_factory=list)  # trajectory, turn, seed
    seen: list[Conversation] = field(default_factory=list)
    refuses: frozenset[Family] = frozenset()

    def complete(self, conversation: Conversation, *, seed: int) -> Completion:
        self.asked.append((conversation.trajectory, conversation.turn, seed))
        self.seen.append(conversation)
        rows = self.answers
        if conversation.task.spec.family in self.refuses:
            return Completion("no template for this family", StopReason.EXHAUSTED)
        if conversation.trajectory >= len(rows) or conversation.turn >= len(rows[conversation.trajectory]):
            return Completion("", StopReason.EXHAUSTED)
        text = rows[conversation.trajectory][conversation.turn]
        if text == "ERROR":
            return Completion("the server is gone", StopReason.ERROR)
        return Completion(f"```cpp\n{text}```\n" if "kg_forward" in text else text, notes={"knob": "1"})


@dataclass
class FakeJudge:
    """Gives the verdict the source asks for, on both decode workloads. ``b4`` in a source doubles decode-b4."""

    judged: list[str] = field(default_factory=list)
    broken: bool = False
    roofline: float | None = None
    opened: int = 0

    def __enter__(self) -> Self:
        self.opened += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def evaluate(self, candidate: Candidate) -> Verdict:
        self.judged.append(candidate.sha)
        if self.broken:
            return Verdict(outcome=Outcome.SANDBOX_FAILED, reason="no user namespaces")
        match = re.search(r"speed (-?[\d.]+)(?: (\S+))?", candidate.source)
        assert match is not None
        speed = float(match[1])
        if speed == 0:
            return Verdict(outcome=Outcome.BUILD_FAILED, reason="expected ';'", log="kernel.cpp:1: error")
        if speed < 0:
            return Verdict(outcome=Outcome.WRONG, reason="output 0 is off")
        ratios = {"decode-b1": speed, "decode-b4": speed * (2 if match[2] == "b4" else 1)}
        results = tuple(timed(workload, ratio) for workload, ratio in ratios.items())
        return Verdict(
            outcome=Outcome.CORRECT,
            reason="all checks passed",
            results=results,
            speedup=sum(ratios.values()) / 2,
            roofline=self.roofline if self.roofline is not None else min(1.0, speed / 10),
            machine=MACHINE.key,
        )


def timed(workload: str, ratio: float) -> WorkloadResult:
    """A result with eager at 100 us and the candidate ``ratio`` times faster, spread 1 %."""

    def around(median: float) -> Quantiles:
        return Quantiles(p20=median * 0.99, median=median, p80=median * 1.01, samples=(median,) * 5)

    return WorkloadResult(
        workload=workload, error=0.5, reference=around(100.0), candidate=around(100.0 / ratio)
    )


@dataclass(frozen=True)
class FakeSettings:
    """Stands in for the judge's settings."""

    timed_workloads: tuple[str, ...] = ()
    trials: int = 5

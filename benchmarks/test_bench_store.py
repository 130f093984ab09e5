"""The run store at the size of a whole benchmark: 250 tasks, 16x4. ``pytest benchmarks/test_bench_store.py``."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optimizer.candidate import Candidate, Language
from optimizer.judge.verdict import Outcome, Quantiles, Verdict, WorkloadResult
from optimizer.policies.protocol import Completion
from optimizer.scores import Scores, all_attempts, score
from optimizer.store import RunStore, SearchKey

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

TASKS, TRAJECTORIES, TURNS = 250, 16, 4
LIMIT_S = 2.0


def quantiles(median: float, draw: random.Random) -> Quantiles:
    samples = tuple(median * draw.uniform(0.98, 1.05) for _ in range(20))
    return Quantiles(p20=median * 0.99, median=median, p80=median * 1.02, samples=samples)


def verdict(draw: random.Random) -> Verdict:
    """A verdict as large as real ones: three workloads with raw samples, or a compiler's log."""
    if draw.random() < 0.4:
        return Verdict(outcome=Outcome.BUILD_FAILED, reason="it does not compile", log="error: no\n" * 100)
    speedup = draw.lognormvariate(0.2, 0.4)
    results = tuple(
        WorkloadResult(
            workload=f"decode-b{batch}",
            error=1.0,
            reference=quantiles(100.0, draw),
            candidate=quantiles(100.0 / speedup, draw),
        )
        for batch in (1, 2, 4)
    )
    return Verdict(outcome=Outcome.CORRECT, reason="ok", results=results, speedup=speedup, roofline=0.5)


def fill(folder: Path, tasks: int = TASKS) -> None:
    """A store as a search leaves it, written without its per-file flushes: one shared source stands for all."""
    draw = random.Random(0)
    candidate = Candidate(Language.CPP, "int kg_forward();\n" + "// code\n" * 500)
    with RunStore.open(folder) as store:
        db = store._db
        db.execute("BEGIN")
        db.execute("INSERT INTO candidates VALUES (?, 'cpp', 0)", (candidate.sha,))
        for task in range(tasks):
            op_key = f"{task:040x}"
            db.execute("INSERT INTO tasks VALUES (?, ?, 'silu_gate')", (op_key, f"task-{task}"))
            db.execute(
                "INSERT INTO searches VALUES (?, ?, 'bench', 'cpp', 'm', 's', 0, '{}', ?, ?, 0)",
                (task + 1, op_key, TRAJECTORIES, TURNS),
            )
            for trajectory in range(TRAJECTORIES):
                db.execute("INSERT INTO trajectories VALUES (?, ?, 'open', '')", (task + 1, trajectory))
                for turn in range(TURNS):
                    _fill_turn(db, draw, task, trajectory, turn, candidate)
        db.execute("COMMIT")


def _fill_turn(db, draw, task, trajectory, turn, candidate) -> None:  # type: ignore[no-untyped-def]
    where, judged = (task + 1, trajectory, turn), verdict(draw)
    cursor = db.execute(
        "INSERT INTO verdicts (op_key, sha, machine, settings, outcome, speedup, roofline, seconds, created, body)"
        " VALUES (?, ?, 'm', ?, ?, ?, ?, 1, 0, ?)",
        (
            f"{task:040x}",
            candidate.sha,
            f"{trajectory}.{turn}",
            judged.outcome,
            judged.speedup,
            judged.roofline,
            judged.model_dump_json(),
        ),
    )
    db.execute(
        "INSERT INTO turns (search, trajectory, turn, sha, verdict, done, created) VALUES (?, ?, ?, ?, ?, 1, 0)",
        (*where, candidate.sha, cursor.lastrowid),
    )
    text = "thinking about the loop order " * 200  # 6 kB
    db.execute("INSERT INTO completions VALUES (?, ?, ?, 0, 'stop', 1, ?, NULL, NULL)", (*where, text))


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    fill(folder)
    return folder


def report(folder: Path) -> Scores:
    with RunStore.open(folder, readonly=True) as store:
        return score(all_attempts(store).values())


def test_open_and_report(benchmark: BenchmarkFixture, large_store: Path) -> None:
    scores = benchmark.pedantic(report, args=(large_store,), rounds=3)
    assert scores.tasks == TASKS
    assert scores.solved > 0.9
    assert benchmark.stats is not None
    assert benchmark.stats.stats.max < LIMIT_S


def test_one_turn(benchmark: BenchmarkFixture, large_store: Path) -> None:
    """What a turn costs besides policy and judge: completion, source, verdict, look-up, in a large store."""
    draw, numbers = random.Random(1), iter(range(10**9))
    judged = verdict(draw)
    with RunStore.open(large_store) as store:
        key = SearchKey(f"{0:040x}", "bench", Language.CPP, "m", "turn", 0)

        def turn() -> None:
            number = next(numbers)
            candidate = Candidate(Language.CPP, f"int kg_forward_{number}();\n" + "// code\n" * 500)
            place = (1, 0, TURNS + number)
            completion = Completion(f"```cpp\n{candidate.source}```")
            store.record_completion(*place, completion, seed=0, seconds=1.0, candidate=candidate)
            assert store.known_verdict(key, candidate.sha) is None
            store.record_verdict(*place, key, candidate, judged, seconds=1.0)

        benchmark.pedantic(turn, rounds=50)
    assert benchmark.stats is not None
    assert benchmark.stats.stats.median < 0.02

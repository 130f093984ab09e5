"""Judging rates: evaluations with and without a compilation, in process calls, and what an evaluation is made of.

Run with ``pytest benchmarks/test_bench_judge.py``; evaluations per minute are in the extra info of each row.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from optimizer.candidate import Candidate, Language
from optimizer.judge.isolation import probe
from optimizer.judge.judge import Judge, JudgeSettings
from optimizer.judge.verdict import Outcome
from optimizer.languages.cpp import CppBuilder
from optimizer.languages.cpp_call import CppKernel
from tests.optimizer.fixtures import kernels, tasks


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module", params=["silu_gate 3072", "ffn_down 3072x1024"])
def judge(
    request: pytest.FixtureRequest, cache: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Judge]:
    """A judge of a Qwen3-0.6B sized bf16 task."""
    folder = tmp_path_factory.mktemp("task")
    if request.param.startswith("silu"):
        task = tasks.silu_gate(folder, dtype="bfloat16", n=3072)
    else:
        task = tasks.linear(folder, dtype="bfloat16", k=3072, n=1024)
    with Judge(task, JudgeSettings(cache_dir=cache)) as opened:
        yield opened


def _source(judge: Judge) -> str:
    return kernels.SILU_BF16 if judge.task.spec.family == "silu_gate" else kernels.LINEAR_BF16


def _rate(benchmark: Any) -> None:
    benchmark.extra_info["evaluations per minute"] = round(60 / benchmark.stats.stats.mean, 1)


def test_evaluate_cached_build(benchmark: Any, judge: Judge) -> None:
    """A candidate that was compiled before."""
    candidate = Candidate(Language.CPP, _source(judge))
    verdict = benchmark.pedantic(judge.evaluate, (candidate,), rounds=8, warmup_rounds=1)
    assert verdict.outcome is Outcome.CORRECT
    _rate(benchmark)


def test_evaluate_with_compilation(benchmark: Any, judge: Judge) -> None:
    """A candidate never seen before."""
    numbers = itertools.count()

    def fresh() -> tuple[tuple[Candidate], dict[str, Any]]:
        return (Candidate(Language.CPP, f"{_source(judge)}// {next(numbers)}"),), {}

    verdict = benchmark.pedantic(judge.evaluate, setup=fresh, rounds=8, warmup_rounds=1)
    assert verdict.build_seconds > 0
    _rate(benchmark)


def test_refuse(benchmark: Any, judge: Judge) -> None:
    """The screen's answer."""
    candidate = Candidate(Language.CPP, "#include <thread>\n" + _source(judge))
    assert benchmark(judge.evaluate, candidate).outcome is Outcome.REFUSED
    _rate(benchmark)


def test_open_judge(benchmark: Any, cache: str, tmp_path: Path) -> None:
    """Trials, right answers and weights of a 3072x1024 linear."""
    task = tasks.linear(tmp_path, dtype="bfloat16", k=3072, n=1024)

    def once() -> None:
        with Judge(task, JudgeSettings(cache_dir=cache)):
            pass

    benchmark.pedantic(once, rounds=3)


def test_compile(benchmark: Any, cache: str) -> None:
    """One small kernel, prelude precompiled."""
    builder = CppBuilder(Path(cache))
    builder.build_source(kernels.silu())
    numbers = itertools.count()
    benchmark.pedantic(lambda: builder.build_source(f"{kernels.silu()}// bench {next(numbers)}"), rounds=8)


def test_call_from_python(benchmark: Any, cache: str) -> None:
    """A bound kernel of two inputs that does nothing: the cost of a patched call."""
    source = f"{kernels.SIGNATURE} {{ return KG_OK; }}"
    x = torch.empty(1, 1, 3072, dtype=torch.bfloat16)
    bound = CppKernel.load(CppBuilder(Path(cache)).build_source(source).path).bind([], [x, x], [x])
    benchmark(bound, x, x)


def test_raise_walls(benchmark: Any) -> None:
    """Start a confined process and report its walls."""
    benchmark.pedantic(probe, rounds=5)

"""Open judges, one per fixture task, shared by a whole test module."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from extractor.task import Task
from optimizer.candidate import Candidate, Language
from optimizer.judge.judge import Judge, JudgeSettings
from optimizer.judge.verdict import Verdict
from tests.optimizer.fixtures import tasks


@pytest.fixture(scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build cache of the test session's own: nothing outside it is read or written."""
    return tmp_path_factory.mktemp("build cache")


@pytest.fixture(scope="session")
def quick(build_cache: Path) -> JudgeSettings:
    """Settings for clear-cut verdicts in little time."""
    torch.set_num_threads(1)
    return JudgeSettings(
        timing_seconds=0.02, run_limit_s=4.0, load_limit_s=1.0, build_limit_s=6.0, cache_dir=str(build_cache)
    )


def _opened(task: Task, settings: JudgeSettings) -> Iterator[Callable[[str], Verdict]]:
    """A judge without its screen, so that what stands behind it is tested."""
    with Judge(task, replace(settings, screening=False)) as judge:
        yield lambda source: judge.evaluate(Candidate(Language.CPP, source))


@pytest.fixture(scope="session")
def judge_silu(
    tmp_path_factory: pytest.TempPathFactory, quick: JudgeSettings
) -> Iterator[Callable[[str], Verdict]]:
    """Judges sources on a float32 silu_gate task."""
    yield from _opened(tasks.silu_gate(tmp_path_factory.mktemp("silu")), quick)


@pytest.fixture(scope="session")
def judge_linear(
    tmp_path_factory: pytest.TempPathFactory, quick: JudgeSettings
) -> Iterator[Callable[[str], Verdict]]:
    """Judges sources on a float32 linear task."""
    yield from _opened(tasks.linear(tmp_path_factory.mktemp("linear")), quick)

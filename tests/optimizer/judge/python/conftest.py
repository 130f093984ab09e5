"""One warm pool for all tests here, and a small task whose weights its constructor draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from extractor.kernelbench import import_kernelbench
from extractor.task import Task
from optimizer.candidate import Candidate, Language
from optimizer.judge.judge import JudgeSettings, Profile
from optimizer.judge.numeric_state import written_down
from optimizer.judge.python.bench import PythonBench
from optimizer.judge.python.spawn import WarmPool
from optimizer.judge.subjects import Subjects
from optimizer.judge.verdict import Verdict
from optimizer.machine import machine_facts
from tests.optimizer.judge.python.sources import REFERENCE


@pytest.fixture(scope="session")
def pool() -> Iterator[WarmPool]:
    with WarmPool() as opened:
        yield opened


@pytest.fixture(scope="session")
def gain_task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("gain")
    file = folder / "gain.py"
    file.write_text(REFERENCE)
    return import_kernelbench(file, folder / "task")


def _bench(pool: WarmPool, task: Task, profile: Profile) -> Iterator[Callable[[str], Verdict]]:
    settings = JudgeSettings(timing=False, trials=3, seed=5, run_limit_s=4.0, profile=profile)
    torch.set_num_threads(1)
    with written_down(1):
        subjects = Subjects(task, settings, machine_facts())
    with PythonBench(subjects, settings, pool) as bench:
        yield lambda source: bench.evaluate(Candidate(Language.TRITON, source))
    subjects.close()


@pytest.fixture(scope="session")
def judge_gain(pool: WarmPool, gain_task: Task) -> Iterator[Callable[[str], Verdict]]:
    """Judges Triton sources on the task, unscreened, by the strict profile."""
    yield from _bench(pool, gain_task, Profile.STRICT)


@pytest.fixture(scope="session")
def judge_gain_loosely(pool: WarmPool, gain_task: Task) -> Iterator[Callable[[str], Verdict]]:
    """The same by the paper's profile."""
    yield from _bench(pool, gain_task, Profile.PAPER)

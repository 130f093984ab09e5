"""Several threads are timed by the wall clock: a disturbed sample is never a speedup."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.candidate import Candidate, Language
from optimizer.judge import quiet, timing
from optimizer.judge.judge import Judge, JudgeSettings
from optimizer.judge.verdict import Outcome, Verdict
from tests.optimizer.fixtures import kernels, tasks


def _spin() -> None:
    while os.getppid() != 1:
        for _ in range(100_000):
            pass


@contextmanager
def _busy() -> Iterator[None]:
    """Two spinning processes on every core this one may use."""
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_spin, daemon=True) for _ in range(2 * len(os.sched_getaffinity(0)))]
    for other in others:
        other.start()
    try:
        time.sleep(0.5)
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def _judge(folder: Path, settings: JudgeSettings) -> Verdict:
    with Judge(tasks.rmsnorm(folder, n=1024), settings) as judge:
        return judge.evaluate(Candidate(Language.CPP, kernels.RMSNORM))


@pytest.fixture
def two(quick: JudgeSettings) -> JudgeSettings:
    return replace(quick, threads=2, run_limit_s=20.0)


def test_a_busy_machine_gives_no_speedup_for_two_threads(tmp_path: Path, two: JudgeSettings) -> None:
    with _busy():
        assert quiet.probe(len(os.sched_getaffinity(0))) < quiet.ENOUGH
        verdict = _judge(tmp_path, two)
    assert verdict.outcome is Outcome.SANDBOX_FAILED, verdict.reason
    assert "quiet machine" in verdict.reason
    assert "--threads 1" in verdict.reason
    assert verdict.speedup is None
    assert all(result.candidate is None for result in verdict.results)


def test_one_thread_is_timed_on_a_busy_machine(tmp_path: Path, quick: JudgeSettings) -> None:
    with _busy():
        verdict = _judge(tmp_path, replace(quick, run_limit_s=30.0))
    assert verdict.outcome is Outcome.CORRECT, verdict.reason


def test_two_threads_are_timed_where_nothing_disturbs(
    tmp_path: Path, two: JudgeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "probe", lambda threads: 1.0)
    monkeypatch.setattr(quiet.Bystander, "stop", lambda self: True)
    verdict = _judge(tmp_path, two)
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    assert verdict.speedup is not None


def test_disturbed_pairs_are_measured_again_and_not_counted(
    tmp_path: Path, two: JudgeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = iter([False] * 6)
    monkeypatch.setattr(quiet, "probe", lambda threads: 1.0)
    monkeypatch.setattr(quiet.Bystander, "stop", lambda self: next(alone, True))
    verdict = _judge(tmp_path, two)
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    timed = next(result for result in verdict.results if result.candidate is not None)
    assert timed.candidate is not None
    assert 2 * timing.MIN_CYCLES <= len(timed.candidate.samples) <= 2 * timing.MAX_CYCLES


@pytest.mark.parametrize("probes", [[0.5], [1.0, 0.5]], ids=["before", "after"])
def test_a_failed_probe_is_retried_a_bounded_number_of_times(
    probes: list[float], tmp_path: Path, two: JudgeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def probe(threads: int) -> float:
        asked.append(threads)
        return probes[(len(asked) - 1) % len(probes)]

    monkeypatch.setattr(quiet, "probe", probe)
    monkeypatch.setattr(quiet.Bystander, "stop", lambda self: True)
    assert _judge(tmp_path, two).outcome is Outcome.SANDBOX_FAILED
    assert asked == [2] * timing.QUIET_ATTEMPTS * len(probes)


def test_a_queue_is_a_share_of_the_wall_time_and_waking_is_free() -> None:
    before = {"1": (0, 0), "2": (0, 0)}
    assert quiet.queued_share(before, {"1": (0, 0), "2": (4_020_000, 0)}, 10e6) == pytest.approx(0.4)
    assert quiet.queued_share(before, {"1": (0, 0), "2": (500_000, 100)}, 10e6) <= 0


def test_without_the_kernels_books_a_probe_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "queued", lambda process: None)
    for share in (0.5, 1.0):
        monkeypatch.setattr(quiet, "probe", lambda threads, share=share: share)
        bystander = quiet.Bystander([os.getpid()], 2)
        bystander.start()
        assert bystander.stop() is (share >= quiet.ENOUGH)

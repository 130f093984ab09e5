"""The order of tasks: share of the step times headroom."""

from pathlib import Path

import pytest

from extractor.census import Census, StepCensus
from extractor.task import Task
from optimizer.headroom import bytes_moved, still_to_give
from optimizer.winners import Best
from tests.optimizer.fakes import make_task

TIMED = ("decode-b1", "decode-b4")


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path, share=0.4)


def census(seconds: float) -> Census:
    steps = [
        StepCensus(
            phase="decode",
            batch=batch,
            rows=batch,
            cache_len=64,
            seconds=seconds,
            repetitions=5,
            clock="thread_time",
            shares=(),
        )
        for batch in (1, 4)
    ]
    return Census(threads=1, steps=tuple(steps))


def test_bytes_by_hand(task: Task) -> None:
    # bfloat16: weight [8], input [1, 8], output [1, 8]
    assert bytes_moved(task.spec, task.spec.workload("decode-b1")) == 2 * (8 + 8 + 8)
    assert bytes_moved(task.spec, task.spec.workload("decode-b4")) == 2 * (8 + 32 + 32)


def test_share_alone_without_census(task: Task) -> None:
    assert still_to_give(task.spec, TIMED) == pytest.approx(0.4)


def test_time_that_bandwidth_demands_cannot_be_saved(task: Task) -> None:
    # a step of 1 ms, 40 % of it in 2 calls: 200 us a call; 48 and 144 bytes at 1.44 MB/s take 33.3 and 100 us
    expected = 0.4 * ((1 - 1 / 6) + (1 - 1 / 2)) / 2
    assert still_to_give(task.spec, TIMED, census=census(1e-3), bandwidth=1.44e6) == pytest.approx(expected)
    assert still_to_give(task.spec, TIMED, census=census(1e-3), bandwidth=1.0) == 0.0


def test_what_was_reached_replaces_the_estimate(task: Task) -> None:
    best = Best("sha", 2.0, 0.75)
    reached = still_to_give(task.spec, TIMED, best=best, census=census(1e-3), bandwidth=1.0)
    assert reached == pytest.approx(0.4 * 0.25 / 2)

"""Rungs: names, the worker's protocol, and failures that are recorded instead of raised."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from integrator.ledger_schema import Rung
from integrator.measure import interleave
from integrator.rungs import RungFailed, UnknownRung, WorkerArm, WorkerSpec, parse_rungs, use_attention


class FakeArm:
    """Takes as many seconds as told, fails from call ``fails_at`` on, and logs its turns."""

    def __init__(self, name: str, log: list[str], fails_at: int = 99) -> None:
        self.name, self._log, self._fails_at = name, log, fails_at

    def sample(self, steps: int) -> float:
        self._log.append(self.name)
        if self._log.count(self.name) >= self._fails_at:
            raise RungFailed(rung=self.name, reason="out of memory")
        return 0.5 / steps


@contextmanager
def worker(**options: object) -> Iterator[WorkerArm]:
    values = {
        "rung": "inductor", "model": "preset:qwen3-tiny", "revision": None, "dtype": "bfloat16", "seed": 0,
        "attention": "eager", "batch": 1, "prompt": 4, "tokens": 4, "threads": 1,
    }  # fmt: skip
    arm = WorkerArm(WorkerSpec(**(values | options)))  # type: ignore[arg-type]
    try:
        yield arm
    finally:
        arm.close()


def test_rungs_by_name() -> None:
    assert parse_rungs(["eager", "inductor-max", "eager"]) == (Rung.EAGER, Rung.INDUCTOR_MAX)
    with pytest.raises(UnknownRung, match="no rung named 'tensorrt'; choose from: sdpa, eager, inductor"):
        parse_rungs(["tensorrt"])


def test_arms_take_turns_and_the_order_reverses_every_round() -> None:
    log: list[str] = []
    samples, failures = interleave([FakeArm("a", log), FakeArm("b", log)], rounds=2, steps=5)
    assert log == ["b", "a", "a", "b", "b", "a"]  # a warm-up round, then two
    assert samples == {"a": [0.1, 0.1], "b": [0.1, 0.1]}
    assert failures == {}


def test_an_arm_that_fails_drops_out_and_the_others_go_on() -> None:
    log: list[str] = []
    samples, failures = interleave([FakeArm("a", log), FakeArm("b", log, fails_at=2)], rounds=3, steps=1)
    assert samples == {"a": [0.5] * 3}
    assert failures == {"b": "out of memory"}
    assert log.count("b") == 2


def test_a_worker_that_cannot_load_its_model_says_why() -> None:
    with worker(model="preset:no-such-thing") as arm, pytest.raises(RungFailed, match="no-such-thing"):
        arm.wait_ready()


def test_a_worker_that_is_gone_is_a_failed_rung() -> None:
    with worker() as arm:
        arm._process.kill()
        with pytest.raises(RungFailed, match="status -9"):
            arm.wait_ready()
        with pytest.raises(RungFailed):
            arm.sample(1)


@pytest.mark.slow
def test_an_inductor_worker_compiles_and_answers() -> None:
    with worker() as arm:
        arm.wait_ready()
        assert arm.compile_seconds is not None
        assert arm.compile_seconds > 0
        assert 0 < arm.sample(2) < 1
        assert arm.peak_rss_bytes is not None
        assert arm.peak_rss_bytes > 1 << 26


def test_an_attention_the_model_lacks_is_a_failed_rung() -> None:
    class Model:
        class config:  # noqa: N801
            _attn_implementation = "eager"

        def set_attn_implementation(self, name: str) -> None:
            raise ValueError("M does not support it yet. Please open an issue.")

    use_attention(Model(), "eager")  # type: ignore[arg-type]
    with pytest.raises(RungFailed, match=r"rung sdpa failed: M does not support it yet$"):
        use_attention(Model(), "sdpa")  # type: ignore[arg-type]

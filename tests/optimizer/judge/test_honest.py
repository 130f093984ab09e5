"""Honest kernels pass, with their speedup measured and nothing flagged."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from extractor.task import Task
from optimizer.candidate import Candidate, Language
from optimizer.judge import subjects
from optimizer.judge.judge import Judge, JudgeSettings, Profile, UnknownWorkload, UnsupportedLanguage
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.machine import machine_facts
from tests.optimizer.fixtures import kernels, tasks


def _judge(task: Task, settings: JudgeSettings, source: str) -> Verdict:
    with Judge(task, settings) as judge:
        return judge.evaluate(Candidate(Language.CPP, source))


@pytest.mark.parametrize(
    ("make", "dtype", "source"),
    [
        (tasks.silu_gate, "float32", kernels.silu()),
        (tasks.silu_gate, "bfloat16", kernels.SILU_BF16),
        (tasks.linear, "float32", kernels.LINEAR),
        (tasks.linear, "float32", kernels.LINEAR_PACKED),
        (tasks.linear, "bfloat16", kernels.LINEAR_BF16),
        (tasks.rmsnorm, "float32", kernels.RMSNORM),
    ],
    ids=["silu-fp32", "silu-bf16", "linear-fp32", "linear-packed", "linear-bf16", "rmsnorm-fp32"],
)
def test_honest_kernels_are_correct_on_every_workload_and_a_held_out_batch(
    make: Callable[..., Task], dtype: str, source: str, tmp_path: Path, quick: JudgeSettings
) -> None:
    verdict = _judge(make(tmp_path, dtype=dtype), quick, source)
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    assert [r.workload for r in verdict.results] == ["decode-b1", "decode-b4", "prefill-b1-s6", "held-out-b3"]
    assert all(r.error is not None and r.error <= 4.0 for r in verdict.results)
    timed = {r.workload for r in verdict.results if r.reference is not None}
    assert timed == {"decode-b1", "decode-b4"}
    assert verdict.speedup is not None
    assert verdict.speedup > 0
    assert verdict.machine == machine_facts().key
    assert verdict.state_changes == ()


def test_a_win_is_measured_where_eager_is_slow(tmp_path: Path, quick: JudgeSettings) -> None:
    """Eager needs five kernels for an rmsnorm; one pass is faster by far more than the noise."""
    verdict = _judge(tasks.rmsnorm(tmp_path, n=1024), quick, kernels.RMSNORM)
    assert verdict.speedup is not None
    assert verdict.speedup > 1.5
    assert set(verdict.winning_workloads) == {"decode-b1", "decode-b4"}


def test_an_untimed_workload_may_be_declined(judge_silu: Callable[[str], Verdict]) -> None:
    verdict = judge_silu(
        kernels.silu(before="", body=f"if (in[0].size[1] > 1) return KG_UNSUPPORTED; {kernels.LOOP}")
    )
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    assert {r.workload: r.detail for r in verdict.results}["prefill-b1-s6"] == "unsupported"


def test_a_timed_workload_must_be_served(judge_silu: Callable[[str], Verdict]) -> None:
    verdict = judge_silu(kernels.silu(body=f"if (in[0].size[0] > 1) return KG_UNSUPPORTED; {kernels.LOOP}"))
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "decode-b4" in verdict.reason


def test_the_paper_profile_accepts_what_strict_refuses(tmp_path: Path, quick: JudgeSettings) -> None:
    """An error of 0.1 % is far beyond fp32's rounding, and well within one hundredth."""
    source = kernels.silu(kernels.LOOP.replace("* up[i]", "* up[i] * 1.001f"))
    task = tasks.silu_gate(tmp_path)
    assert _judge(task, quick, source).outcome is Outcome.WRONG
    assert _judge(task, replace(quick, profile=Profile.PAPER), source).outcome is Outcome.CORRECT


def test_one_seed_gives_one_verdict(tmp_path: Path, quick: JudgeSettings) -> None:
    task = tasks.linear(tmp_path)
    errors = [
        tuple(r.error for r in _judge(task, replace(quick, seed=7, timing=False), kernels.LINEAR).results)
        for _ in range(2)
    ]
    assert errors[0] == errors[1]


def test_unknown_workload_is_named(tmp_path: Path, quick: JudgeSettings) -> None:
    with (
        pytest.raises(UnknownWorkload, match="decode-b9"),
        Judge(tasks.silu_gate(tmp_path), replace(quick, timed_workloads=("decode-b9",))),
    ):
        pass


def test_a_language_of_another_device_is_refused_with_the_remedy(
    tmp_path: Path, quick: JudgeSettings
) -> None:
    with (
        Judge(tasks.silu_gate(tmp_path), replace(quick, timing=False)) as judge,
        pytest.raises(UnsupportedLanguage, match="cuda cannot be judged on cpu; they need a GPU"),
    ):
        judge.evaluate(Candidate(Language.CUDA, "class ModelNew: pass"))


def test_too_little_memory_is_one_sentence(
    tmp_path: Path, quick: JudgeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subjects, "available_bytes", lambda _device: 1 << 10)
    with (
        pytest.raises(subjects.NotEnoughMemory, match="MiB are available"),
        Judge(tasks.linear(tmp_path), quick),
    ):
        pass


@pytest.mark.parametrize("wrong", [{"trials": 1}, {"threads": 0}])
def test_settings_that_make_no_sense(wrong: dict[str, int], quick: JudgeSettings) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(quick, **wrong)

"""The compact profile: figures worked out by hand, names a person can read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.candidate import Candidate, Language
from optimizer.judge.judge import Judge, JudgeSettings
from optimizer.judge.profile import (
    KernelTime,
    NativeTime,
    bound_by,
    device_profile,
    native_profile,
    short_name,
)
from optimizer.judge.verdict import Outcome
from tests.optimizer.fixtures import kernels, tasks

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
NATIVE = NativeTime("decode-b1", microseconds=12.0, overhead=2.0, moved=200e3, moving=8.0, computing=1.0)


def test_shares_and_launches_are_per_forward() -> None:
    times = [
        KernelTime("rms_norm_kernel", 10, 60.0),
        KernelTime(f"{FILL}(int, float)", 10, 10.0),
        KernelTime(f"{FILL}(long, half)", 20, 10.0),
    ]
    assert device_profile(times, forwards=10, wall_microseconds=160.0, workload="decode-b1").splitlines() == [
        "decode-b1: 4 launches per forward, device busy 50% of 16 us",
        "   75%  x1  rms_norm_kernel",
        "   25%  x3  at::native::vectorized_elementwise_kernel",
    ]


def test_only_the_longest_kernels_are_named() -> None:
    times = [KernelTime(f"k{i}", 1, float(10 - i)) for i in range(8)]
    lines = device_profile(times, forwards=1, wall_microseconds=1e4).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["k0", "k1", "k2", "k3", "k4", "others"]
    assert lines[-1].split() == ["23%", "x3", "3", "others"]  # 5 + 4 + 3 of 52


def test_one_launch_and_none() -> None:
    assert device_profile([KernelTime("k", 4, 8.0)], forwards=4, wall_microseconds=8.0).startswith(
        "1 launch per forward, device busy 100% of 2 us"
    )
    assert device_profile([], forwards=2, wall_microseconds=8.0) == "no launches; 4 us per forward"


def test_overlapping_kernels_are_no_more_than_busy() -> None:
    text = device_profile([KernelTime("k", 2, 30.0)], forwards=1, wall_microseconds=20.0)
    assert "device busy 100% of 20 us" in text


def test_a_profile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 forwards"):
        device_profile([], forwards=0, wall_microseconds=1.0)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (f"{FILL}(int, float)", "at::native::vectorized_elementwise_kernel"),
        ("triton_poi_fused_mul_0", "triton_poi_fused_mul_0"),
        ("(anonymous namespace)::scale(float const*, int)", "scale"),
        ("void cutlass::Kernel2<cutlass::gemm<128, 64>::Params>(Params)", "cutlass::Kernel2"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
        ("k" * 80, "k" * 57 + "..."),
        ("", ""),
    ],
)
def test_names(name: str, short: str) -> None:
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (NATIVE, "bound by memory"),
        (replace(NATIVE, computing=9.0), "bound by arithmetic"),
        (replace(NATIVE, overhead=7.0), "bound by the call itself"),
        (replace(NATIVE, moving=4.0), "far from both memory's and arithmetic's bound"),
    ],
)
def test_what_bounds_a_native_kernel(time: NativeTime, words: str) -> None:
    assert bound_by(time) == words
    assert native_profile([time]).endswith(words)


def test_native_figures() -> None:
    assert native_profile([NATIVE]) == (
        "decode-b1: 12 us a call, 2 of them before the kernel begins; 20 GB/s, 80% of the roofline, bound by memory"
    )
    assert native_profile([]) == ""


def test_a_correct_native_candidate_is_profiled_on_request(tmp_path: Path, quick: JudgeSettings) -> None:
    task = tasks.silu_gate(tmp_path, dtype="bfloat16")
    with Judge(task, replace(quick, profiling=True)) as judge:
        verdict = judge.evaluate(Candidate(Language.CPP, kernels.SILU_BF16))
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    timed = [result.workload for result in verdict.results if result.candidate is not None]
    assert [line.partition(":")[0] for line in verdict.profile.splitlines()] == timed
    assert " GB/s, " in verdict.profile


def test_a_bound_that_is_not_known_is_not_called_zero():
    line = native_profile([replace(NATIVE, known=False)])
    assert "12 us a call" in line
    assert "not known" in line
    assert "%" not in line

"""Targets of the compile check; compiling itself is tested with the bench."""

from __future__ import annotations

import pytest

from optimizer.judge.python.spawn import WarmPool
from optimizer.languages.triton import CompileCheck, CompiledKernel, CompileReport, UnknownTarget, capability


def test_capability_of_a_target() -> None:
    assert capability("cuda:90") == 90


@pytest.mark.parametrize("target", ["", "cuda", "cuda:x", "hip:gfx942"])
def test_unknown_target_says_what_is_known(target: str) -> None:
    with pytest.raises(UnknownTarget, match="such as cuda:80"):
        CompileCheck(WarmPool(), target, limit_s=1.0)


def test_report_says_target_shared_memory_registers_and_what_is_open() -> None:
    kernels = (CompiledKernel("dot", 4096, 40), CompiledKernel("sum", 0, None))
    report = CompileReport("cuda:80", kernels, ("other (defined inside a function)",), 0.5)
    assert str(report) == (
        "compiles for cuda:80: dot (4096 bytes of shared memory, 40 registers), sum (0 bytes of shared memory); "
        "not compile-checked: other (defined inside a function)"
    )

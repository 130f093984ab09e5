"""Warm processes: forks are apart from each other, and nothing of them is left."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from optimizer.judge.python.spawn import WarmPool, Zygote
from optimizer.judge.remote import SandboxFault
from optimizer.judge.verdict import Outcome, Verdict
from tests.optimizer.judge.python.sources import HONEST

Judging = Callable[[str], Verdict]


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()


def test_a_candidate_leaves_no_trace_for_the_next(judge_gain: Judging, pool: WarmPool) -> None:
    patching = HONEST.replace(
        "return out", "torch.empty_like = None; triton.next_power_of_2 = None; torch.sub = 1; return out"
    )
    assert judge_gain(patching).outcome is not Outcome.CORRECT
    assert judge_gain(HONEST).outcome is Outcome.CORRECT
    assert children_of(pool.zygote(interpret=True).pid) == []
    assert children_of(pool.zygote(interpret=False).pid) == []


def test_warm_process_has_one_thread(judge_gain: Judging, pool: WarmPool) -> None:
    judge_gain(HONEST)
    for interpret in (True, False):
        assert len(os.listdir(f"/proc/{pool.zygote(interpret=interpret).pid}/task")) == 1


def test_no_descriptor_is_left_open(judge_gain: Judging) -> None:
    judge_gain(HONEST)
    before = len(os.listdir("/proc/self/fd"))
    for source in (HONEST, HONEST.replace("return out", "import os; os._exit(3)")):
        judge_gain(source)
    assert len(os.listdir("/proc/self/fd")) == before


def test_dead_process_is_replaced() -> None:
    with WarmPool() as own:
        first = own.zygote(interpret=False)
        os.kill(first.pid, 9)
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(SandboxFault, match="zygote"):
            first.start({"sizes": {}})
        assert own.zygote(interpret=False).pid != first.pid


def test_closing_ends_the_process() -> None:
    with Zygote(interpret=False) as zygote:
        pid = zygote.pid
        assert zygote.alive
    assert not Path(f"/proc/{pid}").exists()

"""End to end on a GPU: one kernel, and what must happen to its spoilt versions."""

import pytest
import torch

from benchmarks.gpu_judge_check import ENDLESS, TASK, kernel
from extractor.kernelbench import import_kernelbench
from optimizer.judge.judge import Judge
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.verdict import Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; none is here"),
]


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "silu_gate.py").write_text(TASK, encoding="utf-8")
    task = import_kernelbench(folder / "silu_gate.py", folder / "task", device="cuda")
    settings = JudgeSettings(
        device="cuda", timing_seconds=0.1, run_limit_s=10.0, cache_dir=str(folder), profiling=True
    )
    with Judge(task, settings) as opened:
        yield opened


def test_an_honest_kernel_is_timed_in_both_regimes(judge):
    verdict = judge.evaluate(kernel())
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    (result,) = verdict.results
    assert result.graph_speedup is not None
    assert result.graph_speedup > 1.0
    assert verdict.launches == 1
    assert "silu_gate" in verdict.profile
    assert "device memory watch" in (
        *verdict.walls,
        *(wall.partition(":")[0] for wall in verdict.missing_walls),
    )


def test_faults_get_their_answers_and_the_next_candidate_is_unharmed(judge):
    spoilt = [
        (kernel(mask="at < n // 2"), Outcome.WRONG),
        (kernel(result="silu"), Outcome.WRONG),
        (kernel(result="silu * nothing"), Outcome.BUILD_FAILED),
        (kernel(wait=ENDLESS), Outcome.HUNG),
        (kernel(), Outcome.CORRECT),
    ]
    verdicts = list(judge.evaluate_many([candidate for candidate, _ in spoilt]))
    assert [verdict.outcome for verdict in verdicts] == [outcome for _, outcome in spoilt]


def test_the_same_source_is_not_built_twice(judge):
    judge.evaluate(kernel(512))
    assert judge.evaluate(kernel(512)).build_seconds == 0.0

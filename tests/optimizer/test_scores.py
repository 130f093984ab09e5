"""Scores against values worked out by hand."""

import math
from pathlib import Path

import pytest

from extractor.families import Family
from optimizer.candidate import Candidate, Language
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.policies.protocol import Completion
from optimizer.scores import best_of, geometric_mean, latest_attempts, score, score_task
from optimizer.store import RunStore, SearchKey
from tests.optimizer.fakes import make_task

# Three tasks of 2 rollouts x 2 turns.
TASKS = [
    [[None, 4.0], [0.5, 1.0]],  # B = 4; rollouts' best 4, 1
    [[0.25, None], [0.5, None]],  # B = 0.5; rollouts' best 0.25, 0.5
    [[None, None], [None, None]],  # unsolved: B = 1
]


def test_scores_by_hand() -> None:
    result = score(TASKS)
    assert result.tasks == 3
    assert result.raw == pytest.approx((4 * 0.5 * 1) ** (1 / 3))
    assert result.metr == pytest.approx(4 ** (1 / 3))
    assert result.best_gm == result.metr
    assert result.avg_gm == pytest.approx(((4 + 1) / 2 * 1 * 1) ** (1 / 3))
    assert result.solved == pytest.approx(2 / 3)
    assert result.fast1 == pytest.approx(1 / 3)
    assert result.fast2 == pytest.approx(1 / 3)


def test_task_statistics_by_hand() -> None:
    task = score_task([[1.2, 0.9], [None, 1.1], [None], [2.0, 3.0], []])
    assert task.solved
    assert task.best == 3.0
    assert task.clear_rollouts == 2  # 1.2 and 3.0; 1.1 is not above 1.10
    assert task.rollouts == 5
    assert task.median_rollout == 1.1  # of 1, 1, 1.1, 1.2, 3
    assert task.average == pytest.approx((1.2 + 1.1 + 1 + 3 + 1) / 5)


def test_thresholds_are_strict() -> None:
    result = score([[[1.0]], [[2.0]]])
    assert result.fast1 == 0.5
    assert result.fast2 == 0.0
    assert result.solved == 1.0


def test_unsolved_fallback_counts_for_nothing_but_the_denominator() -> None:
    result = score([[[None]], [[4.0]]])
    assert result.raw == pytest.approx(2.0)
    assert result.fast1 == 0.5


def test_slow_best_is_floored_in_metr_only() -> None:
    result = score([[[0.25]]])
    assert result.raw == pytest.approx(0.25)
    assert result.metr == 1.0
    assert result.avg_gm == 1.0


def test_nothing_at_all() -> None:
    result = score([])
    assert result.raw == 1.0
    assert result.solved == 0.0
    assert score_task([]).best == 1.0


def test_geometric_mean_of_extremes_does_not_overflow() -> None:
    assert geometric_mean([1e300, 1e300, 1e-300, 1e-300]) == pytest.approx(1.0)
    assert math.isclose(geometric_mean([2.0, 8.0]), 4.0)


def test_best_of() -> None:
    assert best_of([None, 0.5, None, 0.7]) == 0.7
    assert best_of([None]) is None


def test_tasks_that_are_left_out_do_not_count(tmp_path: Path) -> None:
    sound, sick = make_task(tmp_path / "a"), make_task(tmp_path / "b", Family.RMSNORM)
    assert sound.spec.op_key != sick.spec.op_key
    with RunStore.open(tmp_path / "run") as store:
        for task, seed, speedup in ((sound, 0, 3.0), (sick, 0, 9.0), (sound, 1, 2.0)):
            key = SearchKey(task.spec.op_key, "fixed", Language.CPP, "here", "settings", seed)
            search = store.search(task, key, trajectories=1, turns=1)
            kernel = Candidate(Language.CPP, f"// {speedup}")
            store.record_completion(
                search, 0, 0, Completion("text"), seed=0, seconds=0.0, candidate=kernel, failure=""
            )
            verdict = Verdict(outcome=Outcome.CORRECT, reason="", speedup=speedup)
            store.record_verdict(search, 0, 0, key, kernel, verdict, seconds=0.0)
        assert latest_attempts(store) == [[[9.0]], [[2.0]]]
        assert latest_attempts(store, {sick.spec.op_key}) == [[[2.0]]]

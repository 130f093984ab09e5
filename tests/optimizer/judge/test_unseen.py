"""Whether a candidate is slower on inputs it has never seen: what counts as clear."""

import random

import pytest

from optimizer.judge.unseen import AUDITS, accusation, audit, times_slower, under_load


def test_a_lookup_is_seen() -> None:
    assert times_slower([10.0, 10.5, 9.8, 10.1], [30.0, 31.0], 1.0) == pytest.approx(3.0, rel=0.02)


def test_the_fastest_audit_counts() -> None:
    assert times_slower([10.0, 10.5, 9.8, 10.1], [30.0, 11.0, 40.0], 1.0) == 1.0


def test_noise_is_no_proof() -> None:
    assert times_slower([10.0, 14.0, 10.0, 15.0, 13.0], [20.0], 1.0) == 1.0


def test_noise_of_its_own_making_buys_no_room() -> None:
    assert times_slower([10.0] * 7 + [100.0] * 4, [100.0], 1.0) == pytest.approx(10.0)


def test_a_share_of_unseen_calls_is_enough_if_the_difference_is_large() -> None:
    usual = [10.0, 10.1, 9.9, 10.0]
    assert times_slower(usual, [19.0], 0.1) == pytest.approx(10.0)
    assert times_slower(usual, [11.0], 0.1) == 1.0  # twice as slow, if it were no noise


@pytest.mark.parametrize("usual", [[0.0, 0.0], [10.0, 10.0]])
def test_without_time_or_audits_nothing_is_told(usual: list[float]) -> None:
    assert times_slower(usual, [], 1.0) == 1.0
    assert times_slower([0.0, 0.0], [5.0], 1.0) == 1.0


def test_an_audit_stops_at_the_first_that_is_not_slow() -> None:
    spent = iter([30.0, 31.0, 10.4])
    assert audit([10.0, 10.1, 10.2], lambda: (next(spent), 1.0)) == 1.0
    assert next(spent, None) is None


def test_an_accused_was_slow_every_time() -> None:
    calls: list[float] = []

    def batch() -> tuple[float, float]:
        calls.append(0.0)
        return 30.0, 0.5

    assert audit([10.0, 10.0, 10.0], batch) == pytest.approx(5.0)
    assert len(calls) == AUDITS
    assert "5.0 times slower on inputs it has never seen" in accusation("default", 5.0)


def test_what_slows_eager_too_is_no_proof() -> None:
    usual = [10.0, 10.1, 10.2]
    assert audit(usual, lambda: (under_load(22.0, 200.0, 100.0), 1.0)) == 1.0
    assert audit(usual, lambda: (under_load(22.0, 100.0, 100.0), 1.0)) > 2.0


def test_honest_times_under_load_raise_no_alarm() -> None:
    """Each batch takes up to 2.5 times as long with a probability of a third."""
    dice = random.Random(0)

    def sample() -> float:
        return 10.0 * (1.0 + (1.5 * dice.random() if dice.random() < 1 / 3 else 0.02 * dice.random()))

    def alarm() -> bool:
        usual = [sample() for _ in range(8)]
        return audit(usual, lambda: (sample(), 1.0)) > 1.0

    assert sum(alarm() for _ in range(5000)) == 0

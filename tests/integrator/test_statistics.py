"""Ratios, intervals and Amdahl's law on numbers small enough to check by hand."""

import random

import pytest

from integrator.statistics import amdahl, bootstrap, paired_speedup, tokens_per_second


def test_paired_ratio_cancels_drift_that_unpaired_medians_would_not() -> None:
    drift = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    base = [2.0 * d for d in drift]
    estimate = paired_speedup(base, drift)
    assert (estimate.value, estimate.ci_low, estimate.ci_high) == (2.0, 2.0, 2.0)


def test_unequal_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        paired_speedup([1.0, 2.0], [1.0])


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        bootstrap([])


def test_interval_holds_the_value_and_is_reproducible() -> None:
    samples = [1.0, 1.1, 0.9, 1.05, 0.95, 1.2]
    first, second = bootstrap(samples), bootstrap(samples)
    assert first == second
    assert first.ci_low <= first.value <= first.ci_high
    assert first.ci_low < first.ci_high


def test_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    generator = random.Random(1)
    covered = 0
    for trial in range(100):
        samples = [generator.gauss(10.0, 1.0) for _ in range(12)]
        estimate = bootstrap(samples, seed=trial)
        covered += estimate.ci_low <= 10.0 <= estimate.ci_high
    assert covered >= 88


def test_throughput_counts_every_sequence_of_the_batch() -> None:
    assert tokens_per_second([0.5, 0.5], batch=4).value == 8.0


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], 1.0),
        ([(0.5, 2.0)], 1 / 0.75),
        ([(0.25, 2.0), (0.25, 4.0)], 1 / (1 - 0.125 - 0.1875)),
        ([(0.2, 0.5)], 1 / 1.2),  # a slower kernel makes the whole slower
        ([(0.5, float("inf"))], 2.0),
        ([(1.0, float("inf"))], float("inf")),
    ],
)
def test_amdahl(parts: list[tuple[float, float]], expected: float) -> None:
    assert amdahl(parts) == pytest.approx(expected)

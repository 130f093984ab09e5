"""Ratios with intervals, and Amdahl's law: the ledger's arithmetic, pure and seeded.

Samples are seconds a step. Arms take turns within a round, so slow drift (a neighbour on the memory bus, a
warming CPU) hits all arms of a round alike and cancels in the round's ratio.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from integrator.ledger_schema import Estimate

RESAMPLES = 2000
CONFIDENCE = 0.95


def bootstrap(
    values: Sequence[float], statistic: Callable[[Sequence[float]], float] = median, *, seed: int = 0
) -> Estimate:
    """``statistic`` of ``values`` with its percentile-bootstrap interval at :data:`CONFIDENCE`.

    Raises ValueError if there are no values.

    >>> estimate = bootstrap([2.0, 2.0, 2.0])
    >>> (estimate.value, estimate.ci_low, estimate.ci_high)
    (2.0, 2.0, 2.0)
    """
    if not values:
        raise ValueError("no samples")
    generator = random.Random(seed)
    count = len(values)
    draws = sorted(statistic(generator.choices(values, k=count)) for _ in range(RESAMPLES))
    edge = (1.0 - CONFIDENCE) / 2.0
    low = draws[int(edge * RESAMPLES)]
    high = draws[min(int((1.0 - edge) * RESAMPLES), RESAMPLES - 1)]
    return Estimate(value=statistic(values), ci_low=low, ci_high=high)


def paired_speedup(base: Sequence[float], arm: Sequence[float], *, seed: int = 0) -> Estimate:
    """How many times faster ``arm`` is than ``base``: the median of the rounds' ratios, with its interval.

    Both hold seconds a step, one sample a round of the same run. Raises ValueError if their lengths differ.

    >>> paired_speedup([2.0, 4.0, 2.0], [1.0, 2.0, 1.0]).value
    2.0
    """
    return bootstrap([b / a for b, a in zip(base, arm, strict=True)], seed=seed)


def tokens_per_second(samples: Sequence[float], batch: int, *, seed: int = 0) -> Estimate:
    """Throughput of a batch from its seconds a step."""
    return bootstrap([batch / seconds for seconds in samples], seed=seed)


def amdahl(parts: Iterable[tuple[float, float]]) -> float:
    """Speedup of the whole if the part with share ``s`` of its time gets ``x`` times faster, for each (s, x).

    >>> amdahl([(0.5, 2.0)])
    1.3333333333333333
    >>> amdahl([])
    1.0
    """
    remaining = 1.0
    for share, speedup in parts:
        remaining -= share * (1.0 - 1.0 / speedup)
    return 1.0 / remaining if remaining > 0.0 else float("inf")

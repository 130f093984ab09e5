"""Is a candidate as fast on inputs it has never seen? What looks answers up instead of computing them is not.

Timed inputs are fresh but cheap: what is expensive to draw is derived from earlier draws, and a lookup may find its way
back. So every measurement holds an *audit*: a batch in which some calls get inputs drawn wholly anew. The time that
these take, judged against ordinary batches, decides. Pure functions here; the timers do the measuring.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

AUDITS = 8  # a candidate must be slow in so many audits, one after the other: a loaded machine seldom is
CLEARLY = 1.3  # times slower per call
BATCH_CLEARLY = 1.2  # and times slower per batch, whatever share of its calls is on unseen inputs
SPREADS = 3.0
WIDEST_SPREAD = 0.2  # of the median: a candidate cannot buy itself room by being slow now and then


def times_slower(usual: Sequence[float], unseen: Sequence[float], share: float) -> float:
    """How many times slower a call is on inputs never seen before; 1.0 unless that is clear.

    Args:
        usual: time per call of ordinary batches, at least two.
        unseen: time per call of batches in which ``share`` (above 0, at most 1) of the calls were on unseen inputs.
            The fastest of them counts.
        share: as above.

    >>> times_slower([10.0, 10.2, 10.1], [10.4, 31.0], 1.0)
    1.0
    >>> times_slower([10.0, 10.0, 10.0], [25.0, 31.0], 0.5)
    4.0
    """
    median = statistics.median(usual)
    if median <= 0.0 or not unseen or share <= 0.0:
        return 1.0
    cuts = statistics.quantiles(usual, n=5, method="inclusive")
    spread = min(cuts[3] - cuts[0], WIDEST_SPREAD * median)
    excess = min(unseen) - median
    slower = 1.0 + excess / median / share
    clear = slower > CLEARLY and excess > (BATCH_CLEARLY - 1.0) * median and excess > SPREADS * spread
    return slower if clear else 1.0


def audit(usual: Sequence[float], batch: Callable[[], tuple[float, float]], attempts: int = AUDITS) -> float:
    """Measure batches on unseen inputs until one is not clearly slower; how many times slower if all are, else 1.0.

    Args:
        usual: time per call of ordinary batches: those that its speedup comes from.
        batch: draws unseen inputs, runs and checks the candidate; its time per call, and the share of calls on unseen
            inputs.
        attempts: how many batches at most.
    """
    times: list[float] = []
    shares: list[float] = []
    for _ in range(attempts):
        spent, share = batch()
        times.append(spent)
        shares.append(share)
        slower = times_slower(usual, times, min(shares))
        if slower == 1.0:
            return 1.0
    return slower


def under_load(spent: float, reference: float, usual_reference: float) -> float:
    """A candidate's time in an audit, less what slowed eager down in the same audit, too: load, or harder inputs.

    Args:
        spent: the candidate's time per call.
        reference: eager's, on the same inputs.
        usual_reference: eager's in ordinary batches.

    >>> under_load(30.0, 150.0, 100.0), under_load(30.0, 90.0, 100.0)
    (20.0, 30.0)
    """
    return spent * min(1.0, usual_reference / reference) if reference > 0.0 else spent


def accusation(workload: str, slower: float) -> str:
    """The reason of an ``implausible`` verdict.

    >>> accusation("default", 4.26)
    'workload default: it is 4.3 times slower on inputs it has never seen; it looks answers up, or keeps them'
    """
    return (
        f"workload {workload}: it is {slower:.1f} times slower on inputs it has never seen; "
        "it looks answers up, or keeps them"
    )

"""Interleaved measurement: arms take turns within a round, in an order that reverses every other round (ABBA)."""

from __future__ import annotations

from collections.abc import Sequence

from extractor.progress import Progress, SilentProgress, stage
from integrator.rungs import Arm, RungFailed


def interleave(
    arms: Sequence[Arm],
    *,
    rounds: int,
    steps: int,
    title: str = "measure",
    progress: Progress | None = None,
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Samples (seconds a step) by arm name, and the reasons of arms that failed and dropped out.

    Every arm first decodes one unrecorded chunk. Reversing the order every other round cancels linear drift, so
    ``rounds`` should be even.
    """
    samples: dict[str, list[float]] = {arm.name: [] for arm in arms}
    failures: dict[str, str] = {}
    with stage(progress or SilentProgress(), title, (rounds + 1) * len(arms)) as shown:
        for number in range(rounds + 1):
            for arm in arms if number % 2 else tuple(reversed(arms)):
                if arm.name not in failures:
                    try:
                        seconds = arm.sample(steps)
                    except RungFailed as error:
                        failures[arm.name] = str(error.details["reason"])
                    else:
                        if number > 0:
                            samples[arm.name].append(seconds)
                shown.advance(arm.name)
    return {name: taken for name, taken in samples.items() if name not in failures}, failures

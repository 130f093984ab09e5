"""Where a step's time goes: the share of every family, before any kernel is written.

``census.json`` as pydantic models, readable without torch; :mod:`extractor.timing` does the measuring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from extractor.families import Family

if TYPE_CHECKING:
    from extractor.capture import StepGraph
    from extractor.regions import Region

CENSUS_SCHEMA_VERSION = 1


class FamilyShare(BaseModel):
    """One row: calls and share of one family in one step. ``seconds`` is the median over repetitions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Family | None  # None: what no region claims
    calls: int
    seconds: float
    share: float


class StepCensus(BaseModel):
    """The shares of one step. ``seconds`` is the whole step, CPU time on the CPU, device time elsewhere."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    phase: str
    batch: int
    rows: int
    cache_len: int
    seconds: float
    repetitions: int
    clock: str
    shares: tuple[FamilyShare, ...]


class Census(BaseModel):
    """``census.json``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = CENSUS_SCHEMA_VERSION
    threads: int
    steps: tuple[StepCensus, ...]


@dataclass(frozen=True)
class Timing:
    """Seconds of every region of one step (in the order given), of the rest, and of the whole."""

    regions: tuple[float, ...]
    rest: float
    total: float
    repetitions: int
    clock: str


def summarise(step: StepGraph, regions: Sequence[Region], timing: Timing) -> StepCensus:
    """Add up the regions of each family, in letter order, and the rest last."""
    seconds: dict[Family, float] = defaultdict(float)
    calls: dict[Family, int] = defaultdict(int)
    for region, spent in zip(regions, timing.regions, strict=True):
        seconds[region.family] += spent
        calls[region.family] += 1
    total = timing.total or 1.0
    rows = [
        FamilyShare(
            family=family, calls=calls[family], seconds=seconds[family], share=seconds[family] / total
        )
        for family in sorted(seconds, key=lambda family: family.order)
    ]
    rows.append(FamilyShare(family=None, calls=0, seconds=timing.rest, share=timing.rest / total))
    return StepCensus(
        phase=step.phase.value,
        batch=step.batch,
        rows=step.rows,
        cache_len=step.cache_len,
        seconds=timing.total,
        repetitions=timing.repetitions,
        clock=timing.clock,
        shares=tuple(rows),
    )

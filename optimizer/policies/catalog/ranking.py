"""How good a schedule is expected to be: measured neighbours first, a rule of thumb where there are none.

Predictions are natural logarithms of speed relative to the best schedule of the same slot: 0 is the best known,
-0.1 about 10 % slower. The prior (``prior.json``) holds landscapes measured by ``benchmarks/catalog_landscape.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from extractor.errors import KernelgraftError
from optimizer.policies.catalog.knobs import BF16_DOT, AttentionKnobs, Knobs, LinearKnobs, RowKnobs

PRIOR = Path(__file__).with_name("prior.json")
NEIGHBOURS = 3
REACH = 2.5  # doublings of size beyond which a measurement says nothing
_UNMEASURED = -0.05  # added to the rule of thumb for schedules the neighbours did not try
_BODY_COST = {BF16_DOT: 0.0, "avx512f": -0.06, "avx2": -0.35, "portable": -0.9}


class PriorUnreadable(KernelgraftError):
    """The prior file is not one."""

    template = "catalog prior {path} cannot be used: {problem}; measure it again with benchmarks/catalog_landscape.py"


class Landscape(BaseModel):
    """One slot measured: speed of each schedule as a share of the best one's, by ``"body knob knob ..."``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    dtype: str
    features: tuple[float, ...]
    speeds: dict[str, float]


class Prior(BaseModel):
    """All measured landscapes and the machine they come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = 1
    machine: str = ""
    landscapes: tuple[Landscape, ...] = ()

    @classmethod
    def load(cls, path: Path = PRIOR) -> Prior:
        """Read a prior. Raises PriorUnreadable."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise PriorUnreadable(path=path, problem=str(error).splitlines()[0]) from error


def knob_key(body: str, knobs: Knobs) -> str:
    """``"avx512_bf16 1 2 8192"``: a schedule's name in a landscape."""
    match knobs:
        case LinearKnobs(rows, unroll, ahead):
            return f"{body} {rows} {unroll} {ahead}"
        case AttentionKnobs(keys, block, chunk, fetch):
            return f"{body} {keys} {block} {chunk} {fetch}"
        case RowKnobs(unroll, buffer):
            return f"{body} {unroll} {int(buffer)}"


@dataclass(frozen=True)
class Slot:
    """What a prediction is for: template kind, dtype, sizes (see :func:`plans.features`) and row count M."""

    kind: str
    dtype: str
    features: tuple[float, ...]
    m: int


@dataclass(frozen=True)
class Ranker:
    """Predicts relative speed of schedules of one slot."""

    prior: Prior
    slot: Slot

    @cached_property
    def neighbours(self) -> tuple[tuple[float, Landscape], ...]:
        """The nearest measured landscapes with their weights."""
        near = []
        for landscape in self.prior.landscapes:
            if landscape.kind != self.slot.kind or len(landscape.features) != len(self.slot.features):
                continue
            if landscape.dtype != self.slot.dtype:
                continue
            distance = math.dist(landscape.features, self.slot.features)
            if distance <= REACH:
                near.append((1.0 / (0.1 + distance), landscape))
        near.sort(key=lambda item: -item[0])
        return tuple(near[:NEIGHBOURS])

    def predict(self, body: str, knobs: Knobs) -> float:
        """Expected log speed relative to the slot's best schedule."""
        key = knob_key(body, knobs)
        weight = score = 0.0
        for closeness, landscape in self.neighbours:
            if key in landscape.speeds:
                weight += closeness
                score += closeness * math.log(landscape.speeds[key])
        if weight:
            return score / weight
        return rule_of_thumb(self.slot, body, knobs) + _UNMEASURED


def rule_of_thumb(slot: Slot, body: str, knobs: Knobs) -> float:
    """A guess for machines and shapes nobody has measured; higher is better, 0 at best."""
    score = _BODY_COST[body] if slot.kind != "rows" else _BODY_COST[body] / 2
    match knobs:
        case LinearKnobs(rows, unroll, ahead):
            # One sequential stream with a prefetch some kilobytes ahead feeds a core best at small M; at larger
            # M more rows share each load of x.
            wanted = 1 if slot.m <= 4 else 2
            score -= 0.06 * abs(math.log2(rows / wanted))
            score -= 0.04 * abs(math.log2(unroll / (2 if slot.m <= 2 else 1)))
            score -= 0.03 * abs(math.log2(ahead / 8192)) if ahead else 0.1
        case AttentionKnobs(keys, _, chunk, fetch):
            score -= 0.05 * abs(math.log2(keys / 4)) + 0.05 * abs(math.log2(chunk / 8))
            score -= 0.1 * (2 - fetch)
        case RowKnobs(unroll, buffer):
            score -= 0.02 * math.log2(unroll) + (0.0 if buffer else 0.01)
    return score

"""The ledger's decisions: pure functions from samples to rows, rollbacks and the headline."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extractor.families import Family
from integrator.ledger_schema import (
    Configuration,
    Estimate,
    Headline,
    Parity,
    RollbackReason,
    Rung,
    RungResult,
    RungStatus,
)
from integrator.rungs import OFTEN_STRONGEST
from integrator.statistics import amdahl, bootstrap, paired_speedup, tokens_per_second

STOCK = "stock"
GRAPH = "graph"
FINAL = "final"

PLAUSIBLE_FACTOR = 1.5
PLAUSIBLE_SLACK = 0.05
"""A graft may save at most 1.5 times its operator's census share of the stock step, plus 5 % of the step: the census
is a measurement of another minute, and replacing an operator also removes its dispatch."""


@dataclass(frozen=True)
class GraftFacts:
    """What is known of an accepted kernel at one batch before it is grafted."""

    id: str
    task_id: str
    family: Family
    candidate_sha: str
    isolated_speedup: float | None  # the judge's, at this batch
    share: float | None  # census share of the stock decode step

    @property
    def label(self) -> str:
        """``A ffn_down``."""
        return f"{self.family.letter} {self.family.value}"


@dataclass(frozen=True)
class Step:
    """One configuration to measure: its name, its grafts, and the one that is new."""

    name: str
    grafts: tuple[str, ...]
    added: str | None


def ladder(grafts: Sequence[GraftFacts]) -> list[Step]:
    """``graph``, then one more graft at a time, in the given order. Names are unique."""
    steps = [Step(GRAPH, (), None)]
    for index, graft in enumerate(grafts):
        name = f"+{graft.label}"
        if any(step.name == name for step in steps):
            name = f"{name} ({graft.task_id})"
        steps.append(Step(name, tuple(g.id for g in grafts[: index + 1]), graft.id))
    return steps


def projection(grafts: Sequence[GraftFacts]) -> float | None:
    """Amdahl's speedup over stock with these grafts; None if a share or an isolated speedup is unknown."""
    parts: list[tuple[float, float]] = []
    for graft in grafts:
        if graft.share is None or graft.isolated_speedup is None:
            return None
        parts.append((graft.share, graft.isolated_speedup))
    return amdahl(parts)


def configurations(
    steps: Sequence[Step],
    samples: Mapping[str, Sequence[float]],
    facts: Mapping[str, GraftFacts],
    parities: Mapping[str, Parity],
    batch: int,
) -> tuple[Configuration, ...]:
    """The ladder's rows: stock first, then every step that has samples, ratios paired a round."""
    stock = samples[STOCK]
    rows = [
        Configuration(
            name=STOCK,
            samples=tuple(stock),
            tokens_per_s=tokens_per_second(stock, batch),
            speedup=Estimate(value=1.0, ci_low=1.0, ci_high=1.0),
            parity=parities.get(STOCK),
        )
    ]
    before = stock
    for step in steps:
        taken = samples[step.name]
        rows.append(
            Configuration(
                name=step.name,
                grafts=step.grafts,
                added=step.added,
                samples=tuple(taken),
                tokens_per_s=tokens_per_second(taken, batch),
                speedup=paired_speedup(stock, taken),
                step_speedup=paired_speedup(before, taken),
                projected_speedup=projection([facts[graft] for graft in step.grafts]),
                parity=parities.get(step.name),
            )
        )
        before = taken
    return tuple(rows)


def judge_step(
    before: Sequence[float],
    after: Sequence[float],
    stock: Sequence[float],
    share: float | None,
    *,
    keep_all: bool,
) -> tuple[RollbackReason, str] | None:
    """Whether the graft added between ``before`` and ``after`` must go, from paired seconds a step."""
    saved = bootstrap([(b - a) / s for b, a, s in zip(before, after, stock, strict=True)])
    if share is not None and saved.ci_low > PLAUSIBLE_FACTOR * share + PLAUSIBLE_SLACK:
        return (
            RollbackReason.IMPLAUSIBLE,
            f"it saved {saved.value:.1%} of the step, and its operator only ever took {share:.1%} of it",
        )
    speedup = paired_speedup(before, after)
    if speedup.ci_high < 1.0 and not keep_all:
        return (
            RollbackReason.SLOWER,
            f"the step got {1 / speedup.value:.3f} times slower with it "
            f"(speedup {speedup.value:.3f}, 95 % interval {speedup.ci_low:.3f} to {speedup.ci_high:.3f})",
        )
    return None


def rung_rows(
    rungs: Sequence[Rung],
    samples: Mapping[str, Sequence[float]],
    failures: Mapping[str, str],
    batch: int,
    compile_seconds: Mapping[str, float | None],
    peaks: Mapping[str, int | None],
) -> tuple[RungResult, ...]:
    """One row for every rung there is, measured or not, in the enum's order."""
    rows = []
    for rung in Rung:
        if rung.value in samples:
            taken = samples[rung.value]
            rows.append(
                RungResult(
                    rung=rung,
                    label=rung.label,
                    status=RungStatus.MEASURED,
                    samples=tuple(taken),
                    tokens_per_s=tokens_per_second(taken, batch),
                    compile_seconds=compile_seconds.get(rung.value),
                    peak_rss_bytes=peaks.get(rung.value),
                )
            )
        elif rung in rungs:
            reason = failures.get(rung.value, "no samples")
            rows.append(RungResult(rung=rung, label=rung.label, status=RungStatus.FAILED, reason=reason))
        else:
            reason = f"not asked for; measure it with --rungs {rung.value}"
            rows.append(RungResult(rung=rung, label=rung.label, status=RungStatus.LEFT_OUT, reason=reason))
    return tuple(rows)


def headline(
    rungs: Sequence[RungResult],
    final_samples: Sequence[float],
    *,
    model: str,
    device: str,
    dtype: str,
    batch: int,
) -> Headline:
    """Final configuration against the fastest measured rung of the same run, rounds paired."""
    measured = [row for row in rungs if row.tokens_per_s is not None]
    best = max(measured, key=lambda row: row.tokens_per_s.value if row.tokens_per_s else 0.0)
    assert best.tokens_per_s is not None
    speedup = paired_speedup(best.samples, final_samples)
    return Headline(
        model=model,
        device=device,
        dtype=dtype,
        batch=batch,
        rung=best.rung,
        rung_label=best.label,
        stock_tokens_per_s=best.tokens_per_s.value,
        patched_tokens_per_s=tokens_per_second(final_samples, batch).value,
        speedup=speedup.value,
        ci_low=speedup.ci_low,
        ci_high=speedup.ci_high,
        stronger_left_out=_stronger_than({row.rung for row in measured}),
    )


def _stronger_than(measured: set[Rung]) -> tuple[Rung, ...]:
    """The rungs that usually beat everything in ``measured``."""
    return tuple(itertools.takewhile(lambda rung: rung not in measured, OFTEN_STRONGEST))

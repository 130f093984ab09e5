"""Gather a report from what a run's stages left on disk; an unfinished run gives what it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import prod
from pathlib import Path

from pydantic import ValidationError

from extractor.errors import KernelgraftError
from extractor.families import Family
from integrator.ledger_schema import (
    LEDGER_SCHEMA_VERSION,
    BatchLedger,
    Configuration,
    GraftOutcome,
    Ledger,
    RungStatus,
)
from integrator.report.schema import (
    CurvePoint,
    FamilyRow,
    Graft,
    Headline,
    OmittedRung,
    Rejected,
    Rung,
    WorkloadSpeed,
)
from optimizer.grafts import GraftFile, GraftRecord, load_candidate

LEDGER_FILE = "ledger.json"


class CorruptLedger(KernelgraftError):
    """``ledger.json`` that cannot be trusted."""

    template = "{path}: {problem}; measure again with `kernelgraft integrate`"


def load_ledger(run_folder: Path) -> Ledger | None:
    """The run's ledger, or None if `integrate` has not finished yet. Raises CorruptLedger."""
    path = run_folder / LEDGER_FILE
    try:
        ledger = Ledger.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptLedger(path=path, problem=f"it cannot be read ({error})") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CorruptLedger(path=path, problem=f"invalid at {where}: {first['msg']}") from error
    if ledger.schema_version != LEDGER_SCHEMA_VERSION:
        problem = f"schema version {ledger.schema_version}, this kernelgraft reads {LEDGER_SCHEMA_VERSION}"
        raise CorruptLedger(path=path, problem=problem)
    return ledger


@dataclass(frozen=True)
class LedgerParts:
    """What the ledger contributes to a report."""

    headline: tuple[Headline, ...]
    rungs: tuple[Rung, ...]
    left_out: tuple[OmittedRung, ...]
    curve: tuple[CurvePoint, ...]
    rejected: tuple[Rejected, ...]


def from_ledger(ledger: Ledger) -> LedgerParts:
    """Headline, rungs, curve and rollbacks of every batch."""
    return LedgerParts(
        headline=tuple(_headline(batch) for batch in ledger.batches),
        rungs=tuple(rung for batch in ledger.batches for rung in _rungs(batch)),
        left_out=_left_out(ledger.batches),
        curve=tuple(point for batch in ledger.batches for point in _curve(batch)),
        rejected=tuple(row for batch in ledger.batches for row in _rollbacks(batch)),
    )


def _headline(batch: BatchLedger) -> Headline:
    found = batch.headline
    return Headline(
        model=found.model,
        device=found.device,
        dtype=found.dtype,
        batch=found.batch,
        rung=found.rung_label,
        grafts=len(batch.final.grafts),
        stronger_left_out=tuple(rung.label for rung in found.stronger_left_out),
        stock_tokens_per_s=found.stock_tokens_per_s,
        patched_tokens_per_s=found.patched_tokens_per_s,
        speedup=found.speedup,
        ci_low=found.ci_low,
        ci_high=found.ci_high,
    )


def _rungs(batch: BatchLedger) -> list[Rung]:
    rungs = []
    for result in batch.rungs:
        if result.status is not RungStatus.MEASURED or result.tokens_per_s is None:
            continue
        note = f"compiled in {result.compile_seconds:.0f} s" if result.compile_seconds else ""
        rungs.append(
            Rung(
                name=result.label,
                batch=batch.batch,
                tokens_per_s=result.tokens_per_s.value,
                ci_low=result.tokens_per_s.ci_low,
                ci_high=result.tokens_per_s.ci_high,
                best=result.rung is batch.headline.rung,
                note=note,
            )
        )
    return rungs


def _left_out(batches: Iterable[BatchLedger]) -> tuple[OmittedRung, ...]:
    found: dict[str, str] = {}
    for batch in batches:
        for result in batch.rungs:
            if result.status is RungStatus.MEASURED:
                continue
            word = "failed" if result.status is RungStatus.FAILED else "left out"
            reason = result.reason or word
            found.setdefault(result.label, reason)
    return tuple(OmittedRung(name=name, reason=reason) for name, reason in found.items())


def _curve(batch: BatchLedger) -> list[CurvePoint]:
    outcomes = {outcome.graft: outcome for outcome in batch.grafts}
    base = batch.configurations[0].tokens_per_s.value if batch.configurations else 0.0
    points = []
    for position, configuration in enumerate((*batch.configurations, batch.final)):
        outcome = outcomes.get(configuration.added or "")
        projected = configuration.projected_speedup
        points.append(
            _point(batch.batch, position, configuration, outcome, base * projected if projected else None)
        )
    return points


def _point(
    batch: int,
    position: int,
    configuration: Configuration,
    outcome: GraftOutcome | None,
    projected: float | None,
) -> CurvePoint:
    rate = configuration.tokens_per_s
    return CurvePoint(
        batch=batch,
        position=position,
        label=configuration.name,
        family=outcome.family if outcome else None,
        task_id=outcome.task_id if outcome else None,
        kept=outcome.kept if outcome else True,
        tokens_per_s=rate.value,
        ci_low=rate.ci_low,
        ci_high=rate.ci_high,
        projected_tokens_per_s=projected,
        reason=_reason(outcome) if outcome and not outcome.kept else "",
    )


def _reason(outcome: GraftOutcome) -> str:
    word = outcome.reason.value if outcome.reason else "rolled back"
    return f"{word}: {outcome.detail}" if outcome.detail else word


def _rollbacks(batch: BatchLedger) -> list[Rejected]:
    return [
        Rejected(
            task_id=outcome.task_id,
            family=outcome.family,
            reason=outcome.reason.value if outcome.reason else "rolled back",
            detail=outcome.detail,
            batch=batch.batch,
            isolated_speedup=outcome.isolated_speedup,
        )
        for outcome in batch.grafts
        if not outcome.kept
    ]


def family_rows(batch: BatchLedger, shares: dict[Family, float]) -> list[FamilyRow]:
    """One row a family at one batch: ``shares`` are the census's, of the stock decode step.

    Where a family has several kernels, isolated speedups are combined by share of time and gains multiplied.
    """
    by_family: dict[Family, list[GraftOutcome]] = {}
    for outcome in batch.grafts:
        by_family.setdefault(outcome.family, []).append(outcome)
    families = sorted({*by_family, *shares}, key=lambda family: -_share(family, shares, by_family))
    return [
        _family_row(family, batch.batch, _share(family, shares, by_family) or None, by_family.get(family, []))
        for family in families
    ]


def _share(family: Family, shares: dict[Family, float], outcomes: dict[Family, list[GraftOutcome]]) -> float:
    known = shares.get(family)
    return known if known is not None else sum(outcome.share or 0.0 for outcome in outcomes.get(family, ()))


def _family_row(
    family: Family, batch: int, share: float | None, outcomes: Sequence[GraftOutcome]
) -> FamilyRow:
    kept = [outcome for outcome in outcomes if outcome.kept]
    shown = kept or outcomes
    measured = [o.measured_step_speedup.value for o in shown if o.measured_step_speedup is not None]
    projected = [o.projected_step_speedup for o in shown if o.projected_step_speedup is not None]
    return FamilyRow(
        family=family,
        batch=batch,
        share=share,
        isolated_speedup=_combined(shown),
        projected_gain=prod(projected) if projected else None,
        measured_gain=prod(measured) if measured else None,
        kept=bool(kept),
    )


def _combined(outcomes: Sequence[GraftOutcome]) -> float | None:
    known = [(o.share or 1.0, o.isolated_speedup) for o in outcomes if o.isolated_speedup]
    if not known:
        return None
    return sum(share for share, _ in known) / sum(share / speedup for share, speedup in known)


def from_grafts(run_folder: Path, grafts: GraftFile, sites: dict[str, int]) -> tuple[Graft, ...]:
    """The accepted kernels with their sources; ``sites`` maps a task id to its number of places."""
    return tuple(_graft(run_folder, record, sites) for record in _in_letter_order(grafts.grafts))


def _in_letter_order(records: Iterable[GraftRecord]) -> list[GraftRecord]:
    return sorted(records, key=lambda record: (record.family.order, record.task_id))


def _graft(run_folder: Path, record: GraftRecord, sites: dict[str, int]) -> Graft:
    return Graft(
        task_id=record.task_id,
        family=record.family,
        language=record.language.value,
        candidate_sha=record.candidate_sha,
        speedup=record.speedup,
        workloads=tuple(
            WorkloadSpeed(workload=name, speedup=record.ratios[name])
            for name in record.workloads
            if name in record.ratios
        ),
        sites=sites.get(record.task_id, 0),
        policy=record.policy,
        trajectory=record.trajectory,
        turn=record.turn,
        notes=record.notes,
        source=load_candidate(run_folder, record).source,
    )


def now() -> str:
    """The current time as ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

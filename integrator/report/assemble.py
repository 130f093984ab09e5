"""The whole report of a run: read what every stage left, say what is missing, write the three files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from extractor.families import Family
from extractor.run_folder import RunFolder, RunManifest, read_json, unwritable, write_json, write_text
from extractor.schema import Phase
from extractor.task import Task, load_tasks
from extractor.versions import version_of
from integrator.ledger_schema import Ledger, Parity
from integrator.report.build import family_rows, from_grafts, from_ledger, load_ledger, now
from integrator.report.schema import FamilyRow, Report, TaskScore, Workbench
from integrator.report.stages import StageLog
from optimizer.grafts import GraftFile, NoGrafts
from optimizer.judge.verdict import Outcome
from optimizer.scores import latest_attempts, score
from optimizer.store import RunStore
from optimizer.store_file import NoStore

_OUTCOME_WORDS = {
    Outcome.REFUSED: "refused by the screen",
    Outcome.BUILD_FAILED: "did not compile",
    Outcome.CRASHED: "crashed",
    Outcome.HUNG: "hung",
    Outcome.UNSUPPORTED: "declined a workload",
    Outcome.WRONG: "wrong",
    Outcome.IMPLAUSIBLE: "implausibly fast",
    Outcome.SANDBOX_FAILED: "not judged, the sandbox failed",
}


def build_report(run: RunFolder) -> Report:
    """Everything known of a run, finished or not.

    Raises RunMissing, CorruptRun, CorruptTask, CorruptGrafts, CorruptStore or CorruptLedger: each names its file.
    """
    manifest = run.manifest
    log = StageLog.load(run.path)
    tasks = load_tasks(run.tasks_dir) if run.tasks_dir.is_dir() else []
    grafts = load_grafts(run)
    ledger = load_ledger(run.path)
    parts = from_ledger(ledger) if ledger else None
    missing = _missing(tasks, grafts, ledger)
    return Report(
        headline=parts.headline if parts else (),
        complete=not missing,
        missing=missing,
        run=run.path.name,
        created=now(),
        settings=_settings(manifest, log),
        rungs=parts.rungs if parts else (),
        rungs_left_out=parts.left_out if parts else (),
        curve=parts.curve if parts else (),
        families=_families(run, manifest.batches, ledger),
        grafts=from_grafts(run.path, grafts, {t.id: len(t.spec.sites) for t in tasks}) if grafts else (),
        rejected=parts.rejected if parts else (),
        tasks=task_scores(run),
        scores=search_scores(run, sick=_left_out(tasks, log)),
        parity=_parity(ledger) if ledger else {},
        machine=log.machine,
        versions=_versions(manifest, ledger),
        stages=log.stages,
        peak_memory_bytes=_peak(log),
    )


def write_report(run: RunFolder) -> Report:
    """Write ``report.json``, ``report.html`` and, where there is a curve, ``ledger.png``.

    Raises what :func:`build_report` raises, and RunUnwritable.
    """
    from integrator.report.html import render_html
    from integrator.report.picture import write_picture

    report = build_report(run)
    write_json(run.report_path, report)
    write_text(run.page_path, render_html(report))
    draft = run.figure_path.with_name(f".{run.figure_path.name}.draft")
    try:
        if write_picture(report, draft):
            draft.replace(run.figure_path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise unwritable(run.figure_path, error) from error
    return report


def load_grafts(run: RunFolder) -> GraftFile | None:
    """The accepted kernels, or None before the search. Raises CorruptGrafts."""
    try:
        return GraftFile.load(run.path)
    except NoGrafts:
        return None


def task_scores(run: RunFolder) -> tuple[TaskScore, ...]:
    """What the latest search of each task found, in letter order; empty before the first search.

    Raises CorruptStore, CorruptGrafts.
    """
    grafts = load_grafts(run)
    grafted = {record.task_id for record in grafts.grafts} if grafts else set()
    try:
        store = RunStore.open(run.path, readonly=True)
    except NoStore:
        return ()
    with store:
        rows = store.query(
            "SELECT t.task_id, t.family, v.outcome, COUNT(*), MAX(v.speedup) FROM searches s"
            " JOIN tasks t ON t.op_key = s.op_key"
            " LEFT JOIN turns u ON u.search = s.id AND u.done = 1"
            " LEFT JOIN verdicts v ON v.id = u.verdict"
            " WHERE s.id IN (SELECT MAX(id) FROM searches GROUP BY op_key)"
            " GROUP BY t.task_id, t.family, v.outcome"
        )
    families: dict[str, Family] = {}
    outcomes: dict[str, Counter[Outcome]] = {}
    best: dict[str, float] = {}
    for task_id, family, outcome, count, speedup in rows:
        families[task_id] = Family(family)
        counts = outcomes.setdefault(task_id, Counter())
        if outcome is not None:
            counts[Outcome(outcome)] += count
        if outcome == Outcome.CORRECT and speedup is not None:
            best[task_id] = speedup
    scores = [
        TaskScore(
            task_id=task_id,
            family=family,
            best_speedup=best.get(task_id),
            judged=sum(
                n for outcome, n in outcomes[task_id].items() if outcome is not Outcome.SANDBOX_FAILED
            ),
            reason="" if task_id in grafted else _why_not(outcomes[task_id]),
        )
        for task_id, family in families.items()
    ]
    return tuple(sorted(scores, key=lambda row: (row.family.order, row.task_id)))


def search_scores(run: RunFolder, sick: Collection[str] = ()) -> dict[str, float]:
    """RAW, METR and the rest over the latest search of each task; empty before the first.

    ``sick`` are the op_keys of tasks that do not count.
    """
    try:
        store = RunStore.open(run.path, readonly=True)
    except NoStore:
        return {}
    with store:
        attempts = latest_attempts(store, sick)
    if not attempts:
        return {}
    found = score(attempts)
    return {
        "tasks": found.tasks,
        "RAW": found.raw,
        "METR": found.metr,
        "Best GM": found.best_gm,
        "Avg GM": found.avg_gm,
        "Solved": found.solved,
        "Fast1": found.fast1,
        "Fast2": found.fast2,
    }


def _left_out(tasks: Sequence[Task], log: StageLog) -> set[str]:
    """op_keys of the sick tasks, unless the latest search was asked to include them."""
    included = log.notes.get("sick_tasks") == "included"
    return set() if included else {task.spec.op_key for task in tasks if task.spec.health.sick}


def _why_not(outcomes: Counter[Outcome]) -> str:
    if not outcomes:
        return "no candidate was written for it"
    failures = ", ".join(
        f"{count} {_OUTCOME_WORDS[outcome]}"
        for outcome, count in outcomes.most_common()
        if outcome is not Outcome.CORRECT
    )
    if outcomes[Outcome.CORRECT]:
        return "no kernel is clearly faster than eager" + (f"; {failures}" if failures else "")
    return failures


def _missing(tasks: list[Task], grafts: GraftFile | None, ledger: Ledger | None) -> tuple[str, ...]:
    lines = []
    if not tasks:
        lines.append("no task has been extracted; run `kernelgraft extract`")
    if grafts is None:
        lines.append("no kernel has been searched; run `kernelgraft optimize`")
    elif not grafts.complete:
        lines.append(
            "the search was stopped before its budget was used; run `kernelgraft optimize` to continue"
        )
    if ledger is None:
        lines.append("the whole model has not been measured; run `kernelgraft integrate`")
    return tuple(lines)


def _settings(manifest: RunManifest, log: StageLog) -> Workbench:
    return Workbench(
        model=manifest.model,
        device=manifest.device,
        dtype=manifest.dtype,
        attention=manifest.attention,
        batches=manifest.batches,
        prompt=manifest.prompt,
        tokens=manifest.tokens,
        threads=manifest.threads,
        policy=log.notes.get("policy", ""),
        budget=log.notes.get("budget", ""),
    )


def _families(run: RunFolder, batches: tuple[int, ...], ledger: Ledger | None) -> tuple[FamilyRow, ...]:
    """Rows of the ledger's batches; before there is one, what the census knows of the run's batches."""
    if ledger is not None:
        return tuple(
            row for batch in ledger.batches for row in family_rows(batch, decode_shares(run, batch.batch))
        )
    return tuple(
        FamilyRow(family=family, batch=batch, share=share)
        for batch in batches
        for family, share in sorted(decode_shares(run, batch).items(), key=lambda item: -item[1])
    )


def decode_shares(run: RunFolder, batch: int) -> dict[Family, float]:
    """Share of the stock decode step each family takes at a batch, 0..1, as the census measured it.

    Raises CorruptRun.
    """
    from extractor.census import Census

    if not run.census_path.exists():
        return {}
    census = read_json(run.census_path, Census)
    steps = [step for step in census.steps if step.phase == Phase.DECODE and step.batch == batch]
    return {row.family: row.share for step in steps for row in step.shares if row.family is not None}


def _parity(ledger: Ledger) -> dict[str, str]:
    found = {}
    for batch in ledger.batches:
        found[f"batch {batch.batch}, stock"] = _distance(batch.stock_parity)
        if batch.final.parity is not None:
            found[f"batch {batch.batch}, patched"] = _distance(batch.final.parity)
    return found


def _distance(parity: Parity) -> str:
    return (
        f"KL to the fp32 truth {parity.kl:.2e}, RMS error {parity.rms_error:.3g}, "
        f"same top token {parity.top1_agreement:.1%}, {parity.positions} positions"
    )


def _versions(manifest: RunManifest, ledger: Ledger | None) -> dict[str, str]:
    return {
        "kernelgraft": version_of("kernelgraft"),
        **manifest.versions,
        **(ledger.versions if ledger else {}),
    }


def _peak(log: StageLog) -> int | None:
    return max((entry.peak_bytes for entry in log.stages), default=None)

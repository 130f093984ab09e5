"""The tables a run prints: where the time goes, what the search found, what the model gained graft by graft.

Every cell is a :class:`rich.text.Text`, never markup, and goes through :func:`integrator.report.clean.one_line`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from extractor.run_folder import RunFolder, read_json
from extractor.schema import Phase
from extractor.task import TASK_SOURCE, Task, load_tasks
from integrator.report.clean import one_line
from integrator.report.schema import CurvePoint, Report, TaskScore, tag

if TYPE_CHECKING:
    from extractor.extract import DroppedTask

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Column:
    """A column's heading, side, and whether its cells may wrap."""

    heading: str
    side: Side = "left"
    wrap: bool = False
    style: str = ""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Table:
    """A plain table; ``rows`` hold untrusted text."""
    built = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        built.add_column(
            Text(column.heading),
            justify=column.side,
            no_wrap=not column.wrap,
            style=column.style,
            overflow="fold" if column.wrap else "ellipsis",
        )
    for row in rows:
        built.add_row(*(Text(one_line(cell)) for cell in row))
    return built


def times(value: float | None) -> str:
    """``2.29x``, or nothing."""
    return "" if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """A share in 0..1 as per cent, or nothing."""
    return "" if value is None else f"{value * 100:.1f} %"


def print_table(
    console: Console, title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table; a column whose cells are all empty is left out, and so is a table without rows."""
    used = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    if used:
        shown = [[row[index] for index in used] for row in rows]
        # Not the table's own title: that would wrap at the width of a narrow table.
        console.print(Text(one_line(title), style="bold"), soft_wrap=True)
        console.print(table([columns[index] for index in used], shown))


def print_tasks(console: Console, run: RunFolder) -> None:
    """The extracted tasks: family, sites, workloads, share of the decode step, and where they lie."""
    tasks = load_tasks(run.tasks_dir)
    batches = sorted({w.batch for task in tasks for w in task.spec.workloads})
    columns = (
        Column("family", style="bold"),
        Column("sites", side="right"),
        Column("workloads", side="right"),
        *(Column(f"share b{batch}", side="right") for batch in batches),
        Column("remark", wrap=True),
        Column("file"),
    )
    rows = [
        (
            f"{tag(task.spec.family)} {task.spec.family.value}",
            str(len(task.spec.sites)),
            str(len(task.spec.workloads)),
            *(percent(_share(task, batch)) for batch in batches),
            ", ".join(task.spec.health.flags),
            f"{run.tasks_dir.name}/{task.id}/{TASK_SOURCE}",
        )
        for task in tasks
    ]
    title = f"Tasks in {run.path}: operators of the model, and their share of a stock decode step"
    print_table(console, title, columns, rows)


def print_search(console: Console, tasks: Sequence[TaskScore]) -> None:
    """What the search found on each task."""
    rows = [
        (
            f"{tag(row.family)} {row.family.value}",
            row.task_id,
            times(row.best_speedup),
            str(row.judged),
            row.reason,
        )
        for row in tasks
    ]
    columns = (
        Column("family", style="bold"),
        Column("task"),
        Column("best", side="right"),
        Column("judged", side="right"),
        Column("remark", wrap=True),
    )
    print_table(console, "Search: best correct kernel of each task, against eager, alone", columns, rows)


def print_ledger(console: Console, report: Report) -> None:
    """Every batch's ledger, its stock rungs, and what was left out."""
    for batch in report.batches:
        points = report.points(batch)
        base = points[0].tokens_per_s
        columns = (
            Column("configuration", style="bold"),
            Column("tokens/s", side="right"),
            Column("95 % CI", side="right"),
            Column("vs stock", side="right"),
            Column("projected", side="right"),
            Column("outcome", wrap=True),
        )
        rows = [_ledger_row(point, base) for point in points]
        print_table(
            console, f"Ledger, batch {batch}: the whole model with one more graft a line", columns, rows
        )
        rungs = [
            (
                r.name,
                f"{r.tokens_per_s:.2f}",
                _interval(r.ci_low, r.ci_high),
                "best stock" if r.best else "",
                r.note,
            )
            for r in report.rungs
            if r.batch == batch
        ]
        rung_columns = (
            Column("stock rung"),
            Column("tokens/s", side="right"),
            Column("95 % CI", side="right"),
            Column(""),
            Column("note"),
        )
        print_table(console, f"Stock rungs, batch {batch}", rung_columns, rungs)
    for rung in report.rungs_left_out:
        console.print(
            Text(one_line(f"Not measured: {rung.name} ({rung.reason})"), style="dim"), soft_wrap=True
        )


def print_census(console: Console, run: RunFolder) -> None:
    """Where the time of a stock step goes, family by family, in every phase and batch; the rest is last.

    Raises CorruptRun.
    """
    from extractor.census import Census

    census = read_json(run.census_path, Census)
    shares = [{row.family: row for row in step.shares} for step in census.steps]
    families = sorted({f for step in shares for f in step if f is not None}, key=lambda family: family.order)
    columns = (
        Column("family", style="bold"),
        *(Column(f"{step.phase} b{step.batch}", side="right") for step in census.steps),
    )
    rows = [
        (
            "everything else" if family is None else f"{tag(family)} {family.value}",
            *(percent(step[family].share) if family in step else "" for step in shares),
        )
        for family in (*families, None)
    ]
    rows.append(("one step", *(f"{step.seconds * 1e3:.1f} ms" for step in census.steps)))
    print_table(console, "Census: where the time of a stock step goes", columns, rows)


def print_dropped(console: Console, dropped: Sequence[DroppedTask]) -> None:
    """What was found and left out, one line a family and reason."""
    counts = Counter((item.family, item.reason) for item in dropped)
    for (family, reason), count in sorted(counts.items(), key=lambda item: item[0][0].order):
        line = f"left out {family.value} at {count} site{'' if count == 1 else 's'}: {reason}"
        console.print(Text(one_line(line), style="yellow"), soft_wrap=True)


def print_headline(console: Console, report: Report) -> None:
    """One sentence a batch; nothing is claimed where nothing was measured."""
    for entry in report.headline:
        sentence = one_line(f"{entry.model}, {entry.dtype}, {entry.device}, {entry.sentence()}")
        console.print(Text(sentence, style="bold green"), soft_wrap=True)
    for line in report.missing:
        console.print(Text(one_line(f"Still missing: {line}"), style="yellow"), soft_wrap=True)


def _share(task: Task, batch: int) -> float | None:
    known = [
        w.share
        for w in task.spec.workloads
        if w.phase is Phase.DECODE and w.batch == batch and w.share is not None
    ]
    return sum(known) if known else None


def _ledger_row(point: CurvePoint, base: float) -> tuple[str, ...]:
    return (
        point.label if point.family is None else f"+ {tag(point.family)} {point.family.value}",
        f"{point.tokens_per_s:.2f}",
        _interval(point.ci_low, point.ci_high),
        times(point.tokens_per_s / base if base else None),
        "" if point.projected_tokens_per_s is None else f"{point.projected_tokens_per_s:.2f}",
        ("" if point.family is None else "kept") if point.kept else f"rolled back, {point.reason}",
    )


def _interval(low: float, high: float) -> str:
    return f"{low:.2f}-{high:.2f}"

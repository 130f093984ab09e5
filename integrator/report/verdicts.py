"""What a person at a terminal sees of one verdict, and of the judge's self-test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from integrator.report.clean import one_line, plain
from integrator.report.tables import Column, table, times
from optimizer.judge.verdict import Outcome, Quantiles, Verdict, WorkloadResult

if TYPE_CHECKING:
    from optimizer.judge.selftest import SelfTestReport
    from optimizer.judge.single import JudgedFile

_LOG_LINES = 12
_REMARK_WIDTH, _ENDLESS = 24, 10_000
_COLUMNS = (
    Column("workload"),
    Column("eager", "right"),
    Column("candidate", "right"),
    Column("speedup", "right"),
    Column("noise", "right"),
    Column("called one by one", "right"),
    Column("clear win"),
    Column("error / eager's", "right"),
    Column("remark", wrap=True),
)


def print_judged(console: Console, judged: JudgedFile) -> None:
    """Outcome and reason, then the table of workloads, then what the verdict rests on."""
    verdict = judged.verdict
    console.print(
        Text(one_line(f"{judged.candidate} ({judged.language.value}) on {judged.task}"), style="bold"),
        soft_wrap=True,
    )
    style = "green" if verdict.outcome is Outcome.CORRECT else "red"
    reason = one_line(verdict.reason, 2000)
    for again in (", ", " "):  # "correct, 2x eager", "refused by rule ..."
        reason = reason.removeprefix(verdict.outcome.value + again)
    console.print(Text(f"{verdict.outcome.value}: {reason}", style=style), soft_wrap=True)
    if verdict.results:
        _print_workloads(console, verdict)
    for line in _footing(judged):
        console.print(Text(line, style="dim"), soft_wrap=True)
    for block in (verdict.profile, *_shortened(verdict.log)):
        if block:
            console.print(Text(plain(block)), soft_wrap=True)


def print_self_test(console: Console, report: SelfTestReport) -> None:
    """Each failure, then the counts."""
    for failure in report.failures:
        console.print(Text(one_line(f"NOT AS STATED {failure}", 2000), style="red"), soft_wrap=True)
    for thing in report.left_behind:
        console.print(Text(one_line(f"LEFT BEHIND {thing}", 2000), style="red"), soft_wrap=True)
    for skipped in report.skipped:
        console.print(Text(one_line(f"skipped: {skipped}", 2000), style="yellow"), soft_wrap=True)
    console.print(
        f"honest candidates passed  {report.honest.passed} of {report.honest.total}\n"
        f"cheats and faults caught  {report.cheats.caught} of {report.cheats.total}\n"
        f"evaluations a minute      {report.evaluations_per_minute:.0f}\n"
        f"device                    {report.device}\n"
        f"walls                     {', '.join(report.walls) or 'none'}"
    )
    for wall in report.missing_walls:
        console.print(Text(one_line(f"missing wall              {wall}"), style="yellow"), soft_wrap=True)


def _print_workloads(console: Console, verdict: Verdict) -> None:
    """One row a workload, or where the window is too narrow for its numbers one block of lines a workload.

    Columns that no row fills are left out.
    """
    rows = [_row(result) for result in verdict.results]
    filled = [index for index in range(len(_COLUMNS)) if any(row[index] for row in rows)]
    shown = [[row[index] for index in filled] for row in rows]
    columns = [_COLUMNS[index] for index in filled]
    narrow = [replace(column, heading=re.sub(r" (?!/)", "\n", column.heading)) for column in columns]
    for wanted in (columns, narrow):
        built = table(wanted, shown)
        if _width(console, wanted, shown) <= console.width:
            console.print(built)
            return
    for row in shown:
        facts = [
            f"{column.heading} {cell}" for column, cell in zip(columns[1:], row[1:], strict=True) if cell
        ]
        console.print(Text(one_line(row[0]), style="bold"), soft_wrap=True)
        for fact in facts:
            console.print(Text(one_line(f"  {fact}")), soft_wrap=True)


def _width(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Characters a table needs for all that must not wrap, and a little for what may."""
    firm = [index for index, column in enumerate(columns) if not column.wrap]
    built = table([columns[index] for index in firm], [[row[index] for index in firm] for row in rows])
    room = sum(_REMARK_WIDTH for column in columns if column.wrap)
    return console.measure(built, options=console.options.update(width=_ENDLESS)).maximum + room


def _row(result: WorkloadResult) -> list[str]:
    timed = result.decisive is not None
    reference, candidate = result.decisive or (None, None)
    return [
        result.workload,
        _microseconds(reference),
        _microseconds(candidate),
        times(result.speedup),
        f"{result.noise:.1%}" if result.noise is not None else "",
        times(result.eager_speedup) if result.graph_speedup is not None else "",
        ("yes" if result.clear_win else "no") if timed else "",
        f"{result.error:.2f}" if result.error is not None else "",
        result.detail,
    ]


def _microseconds(side: Quantiles | None) -> str:
    return "" if side is None else f"{side.median:.4g} us"


def _footing(judged: JudgedFile) -> list[str]:
    """What the verdict rests on: tolerance, clock, roofline, launches, numeric state, walls, and the task's health."""
    verdict = judged.verdict
    facts = [f"tolerance {judged.tolerance}", f"device {verdict.device}"]
    if verdict.clock:
        facts.append(f"times are {verdict.clock}")
    if verdict.roofline is not None:
        facts.append(f"{verdict.roofline:.0%} of the roofline bound")
    if verdict.launches is not None:
        plural = "launch" if verdict.launches == 1 else "launches"
        facts.append(f"{verdict.launches} custom {plural} a forward")
    lines = [", ".join(facts)]
    if verdict.walls:
        lines.append(f"walls: {', '.join(verdict.walls)}")
    lines += [f"missing wall: {wall}" for wall in verdict.missing_walls]
    lines += [f"numeric state changed: {change}" for change in verdict.state_changes]
    lines += [f"the task is suspicious: {flag}" for flag in judged.health]
    return [one_line(line, 2000) for line in lines]


def _shortened(log: str) -> list[str]:
    lines = log.splitlines()
    if len(lines) > _LOG_LINES:
        lines = [*lines[:_LOG_LINES], f"... {len(lines) - _LOG_LINES} more lines"]
    return ["\n".join(lines)] if lines else []

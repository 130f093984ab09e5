"""What a person at a terminal sees while a stage runs: bars with an estimate, or plain lines in a log.

:func:`watcher` chooses: live bars on a terminal, else one line now and then, so that a log file or a CI page stays
readable. Both implement :class:`extractor.progress.Progress`; nested stages are shown below each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from integrator.report.clean import one_line

if TYPE_CHECKING:
    from extractor.progress import Progress

PIPE_COLUMNS = 160
REFRESH_HZ = 4.0  # the bars share the process with what is measured
QUIET_SECONDS = 5.0  # plain lines of one stage come no closer together than this


def duration(seconds: float) -> str:
    """A duration for people.

    >>> duration(75), duration(0.34), duration(7322)
    ('1 min 15 s', '0.3 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 1:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def remaining(elapsed: float, done: float, total: float) -> float | None:
    """Seconds left if the rest goes as the part so far did; None before the first step.

    >>> remaining(10.0, 2, 6)
    20.0
    """
    if done <= 0 or total <= 0:
        return None
    return elapsed * max(total - done, 0.0) / done


def make_console(*, stderr: bool = False) -> Console:
    """A console that follows NO_COLOR and the terminal's width; a pipe or a file gets room for whole tables."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    return console


def watcher(console: Console) -> Progress:
    """Live bars if the console is a terminal that can move its cursor, plain lines otherwise."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console)
    return LineProgress(lambda line: console.print(Text(line), soft_wrap=True))


class Attentive:
    """A progress that asks, at every step, whether to go on.

    A signal's KeyboardInterrupt can be raised inside a library's callback and be swallowed there; ``check`` raises
    it again at the next step. Ending a stage never asks, so that cleaning up is not cut short.
    """

    def __init__(self, progress: Progress, check: Callable[[], None]) -> None:
        self._progress = progress
        self._check = check

    def start(self, stage: str, total: int) -> None:
        """Ask, then begin."""
        self._check()
        self._progress.start(stage, total)

    def advance(self, note: str = "", steps: int = 1) -> None:
        """Ask, then count."""
        self._check()
        self._progress.advance(note, steps)

    def message(self, text: str) -> None:
        """Pass on."""
        self._progress.message(text)

    def finish(self) -> None:
        """Pass on."""
        self._progress.finish()


class _Remaining(ProgressColumn):
    """``about 40 s left``, or what has passed once the stage is done."""

    def render(self, task: Task) -> Text:
        left = remaining(task.elapsed or 0.0, task.completed, task.total or 0.0)
        words = "estimating" if left is None else f"about {duration(left)} left"
        return Text(words, style="dim")


class LiveProgress:
    """Bars that redraw in place and vanish when their stage ends, leaving one line behind."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Bars | None = None
        self._open: list[TaskID] = []

    def start(self, stage: str, total: int) -> None:
        """Open a bar; the first one of a run starts the display."""
        if self._bars is None:
            self._bars = Bars(
                TextColumn("{task.description}", style="bold", markup=False),
                BarColumn(bar_width=28),
                TextColumn("{task.completed:.0f}/{task.total:.0f}", markup=False),
                _Remaining(),
                TextColumn("{task.fields[note]}", style="dim", markup=False),
                console=self._console,
                refresh_per_second=REFRESH_HZ,
                transient=True,
            )
            self._bars.start()
        self._open.append(self._bars.add_task(one_line(stage, 40), total=max(total, 1), note=""))

    def advance(self, note: str = "", steps: int = 1) -> None:
        """Move the innermost bar."""
        if self._bars is not None and self._open:
            self._bars.update(self._open[-1], advance=steps, note=one_line(note, 60))

    def message(self, text: str) -> None:
        """Print a line above the bars."""
        self._console.print(Text("  " + one_line(text)), soft_wrap=True)

    def finish(self) -> None:
        """Close the innermost bar; the display ends with the last one."""
        if self._bars is None or not self._open:
            return
        number = self._open.pop()
        task = next(task for task in self._bars.tasks if task.id == number)
        how = _count(int(task.completed), int(task.total or 0))
        line = f"{task.description}: {how}, {duration(task.elapsed or 0.0)}"
        self._bars.remove_task(number)
        if not self._open:
            self._bars.stop()
            self._bars = None
        self._console.print(Text(line, style="dim"), soft_wrap=True)


@dataclass
class _Stage:
    name: str
    total: int
    started: float
    done: int = 0
    said: float = float("-inf")


class LineProgress:
    """Plain lines for logs: the start, a line every few seconds, every message, and the end."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._open: list[_Stage] = []

    def start(self, stage: str, total: int) -> None:
        """Announce a stage."""
        now = self._clock()
        self._open.append(_Stage(name=one_line(stage, 40), total=total, started=now, said=now))
        self._write(f"{self._open[-1].name}: started, {_steps(total)}")

    def advance(self, note: str = "", steps: int = 1) -> None:
        """Count, and speak if it has been quiet for a while."""
        if not self._open:
            return
        stage, now = self._open[-1], self._clock()
        stage.done += steps
        if now - stage.said < QUIET_SECONDS:
            return
        stage.said = now
        left = remaining(now - stage.started, stage.done, stage.total)
        estimate = "" if left is None else f", about {duration(left)} left"
        told = f" ({one_line(note, 80)})" if note else ""
        self._write(f"{stage.name}: {stage.done}/{stage.total}{estimate}{told}")

    def message(self, text: str) -> None:
        """Write the line."""
        self._write("  " + one_line(text))

    def finish(self) -> None:
        """Say how long the stage took."""
        if self._open:
            stage = self._open.pop()
            self._write(
                f"{stage.name}: {_count(stage.done, stage.total)}, {duration(self._clock() - stage.started)}"
            )


def _steps(total: int) -> str:
    return f"{total} step{'' if total == 1 else 's'}"


def _count(done: int, total: int) -> str:
    return "done" if done >= total else f"ended after {done} of {total}"

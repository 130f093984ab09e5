"""How a long stage tells whoever is watching where it is: a Protocol, and the silent default.

The stages know nothing of terminals. The front door passes a rich implementation; tests pass none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Receives the life of one long stage at a time."""

    def start(self, stage: str, total: int) -> None:
        """A stage of ``total`` steps begins."""

    def advance(self, note: str = "", steps: int = 1) -> None:
        """``steps`` more are done; ``note`` says what was just finished or is now under way."""

    def message(self, text: str) -> None:
        """One line worth keeping on screen (a dropped task, a new best, a rollback, a fallback)."""

    def finish(self) -> None:
        """The stage is over, also when it ended early."""


class SilentProgress:
    """Says nothing: the default of every stage."""

    def start(self, stage: str, total: int) -> None:
        return None

    def advance(self, note: str = "", steps: int = 1) -> None:
        return None

    def message(self, text: str) -> None:
        return None

    def finish(self) -> None:
        return None


@contextmanager
def stage(progress: Progress, name: str, total: int) -> Iterator[Progress]:
    """Bracket a stage so that ``finish`` is called on every way out."""
    progress.start(name, total)
    try:
        yield progress
    finally:
        progress.finish()

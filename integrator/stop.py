"""Ctrl-C and a polite kill, as one orderly way to end a run."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

INTERRUPTED, TERMINATED = 130, 143  # exit statuses, as shells report these signals
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Turns SIGINT and SIGTERM into KeyboardInterrupt while its block runs, and remembers that one came.

    Raised inside a library's callback, an exception can be swallowed there; long stages therefore call :meth:`check`
    at every step. SIGTERM raises too, so that workers are reaped and files are whole.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._previous: list[Any] = []

    @property
    def status(self) -> int:
        """The exit status to end with."""
        return TERMINATED if self._number == signal.SIGTERM else INTERRUPTED

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self._number is not None:
            raise KeyboardInterrupt

    def settle(self) -> None:
        """From here on nothing interrupts: the last words are being said."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def __enter__(self) -> Self:
        self._previous = [signal.signal(number, self._receive) for number in _SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in zip(_SIGNALS, self._previous, strict=True):
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        raise KeyboardInterrupt

"""Ctrl-C, a polite kill and a closed terminal, as one orderly way to end a run."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

INTERRUPTED = 130  # exit statuses, as shells report signals: 128 and the signal's number
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Turns SIGINT, SIGTERM and SIGHUP into KeyboardInterrupt while its block runs, and remembers that one came.

    Raised inside a library's callback, an exception can be swallowed there; long stages therefore call :meth:`check`
    at every step. All of them raise, so that workers are reaped, files are whole and temporary folders go.
    A SIGHUP that is ignored when the block begins (``nohup``) stays ignored.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._previous: list[Any] = []

    @property
    def status(self) -> int:
        """The exit status to end with."""
        return INTERRUPTED if self._number is None else 128 + self._number

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self._number is not None:
            raise KeyboardInterrupt

    def settle(self) -> None:
        """From here on nothing interrupts: the last words are being said."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def __enter__(self) -> Self:
        self._previous = [signal.getsignal(number) for number in _SIGNALS]
        for number, previous in zip(_SIGNALS, self._previous, strict=True):
            if number != signal.SIGHUP or previous != signal.SIG_IGN:
                signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in zip(_SIGNALS, self._previous, strict=True):
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        raise KeyboardInterrupt

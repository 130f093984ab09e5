"""Says on the channel which address a dying worker touched, and at which line of the candidate. Compiler-free.

The handler is Python, called in the middle of whatever faulted: it may fail, and then the process just dies, as it
would have without. It runs once; the faulting instruction is then repeated with the default action.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
from typing import Any

from optimizer.judge import wire

_SA_SIGINFO, _SA_NODEFER, _SA_RESETHAND = 4, 0x40000000, 0x80000000
_ADDRESS = 16  # offset of si_addr in siginfo_t
_X86_ERROR = 192  # offset of the page-fault error code in ucontext_t on x86-64; bit 1 is "write"
_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", _HANDLER),
        ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class FaultWatch:
    """Fault handlers, installed on construction and good as long as the context is not left.

    ``read_only`` are (first address, bytes) of mappings that can only fault on a write.
    """

    def __init__(self, channel: int, source: str, read_only: list[tuple[int, int]]) -> None:
        def report(number: int, info: int, context: int) -> None:
            address = ctypes.c_uint64.from_address(info + _ADDRESS).value
            write = any(base <= address < base + size for base, size in read_only)
            if platform.machine() == "x86_64":
                write = write or bool(ctypes.c_uint64.from_address(context + _X86_ERROR).value & 2)
            line = line_of(sys._getframe(), source)
            text = f"at line {line}".encode() if line else b""
            os.write(channel, wire.FAULT.pack(b"X", int(write), number, 0, address) + text)

        self._handler = _HANDLER(report)
        action = _Action(self._handler, flags=_SA_SIGINFO | _SA_NODEFER | (_SA_RESETHAND - (1 << 32)))
        libc = ctypes.CDLL(None)
        for number in _SIGNALS:
            libc.sigaction(ctypes.c_int(number), ctypes.byref(action), None)

    def __enter__(self) -> FaultWatch:
        return self

    def __exit__(self, *_: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)


def line_of(frame: Any, source: str) -> int:
    """The innermost line of the file ``source`` that is being executed; 0 if none is."""
    while frame is not None:
        if frame.f_code.co_filename == source:
            return int(frame.f_lineno)
        frame = frame.f_back
    return 0

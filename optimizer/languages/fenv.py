"""The calling thread's floating-point control state: flush-to-zero, denormals-are-zero, rounding.

A kernel that leaves it changed would change the numerics of the whole model it is grafted into. Torch-free.
"""

import ctypes
import functools
import platform

DEFAULT_MXCSR = 0x1F80
_CONTROL = 0xFFC0  # all but the sticky exception flags, which any arithmetic sets
_MEANINGS = ((0x8000, "flush-to-zero"), (0x0040, "denormals-are-zero"), (0x6000, "rounding mode"))


@functools.cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL("libm.so.6")


def control_word() -> int:
    """MXCSR without the sticky flags on x86-64; FPCR on aarch64; 0 elsewhere."""
    buffer = (ctypes.c_uint32 * 16)()
    if _libm().fegetenv(ctypes.byref(buffer)) != 0:
        return 0
    if platform.machine() == "x86_64":
        return int(buffer[7]) & _CONTROL  # glibc's fenv_t ends with MXCSR, at byte 28
    if platform.machine() == "aarch64":
        return int(buffer[0])
    return 0


def describe_change(before: int, after: int) -> str:
    """What differs between two control words, in words; empty if nothing does."""
    if before == after:
        return ""
    changed = [name for bits, name in _MEANINGS if (before ^ after) & bits] or ["exception masks"]
    return f"floating-point control 0x{before:04x} -> 0x{after:04x} ({', '.join(changed)})"

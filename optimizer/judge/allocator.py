"""glibc's allocator, kept in the state that a long-running model has it in.

Above a threshold glibc maps fresh pages for every allocation and gives them back when it is freed: each call of an
operator with a large output then pays for page faults and zeroing. The threshold moves with what a process has freed
before, so one process measures an operator five times slower than the next. A model that has run for a moment has the
high threshold; the judge starts with it.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_MMAP_THRESHOLD = 32 << 20  # glibc takes no more on 64-bit machines
_TRIM_THRESHOLD = 256 << 20  # what is kept at most


def keep_pages() -> bool:
    """Have this process keep freed memory for its next allocations; False where the allocator is not glibc's."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    mapped = mallopt(ctypes.c_int(_M_MMAP_THRESHOLD), ctypes.c_int(_MOST_MMAP_THRESHOLD))
    trimmed = mallopt(ctypes.c_int(_M_TRIM_THRESHOLD), ctypes.c_int(_TRIM_THRESHOLD))
    return bool(mapped and trimmed)

"""What to add to the reason of a crash that comes of there being no GPU."""

from __future__ import annotations

import re

_ABOUT_CUDA = re.compile(
    r"compiled with CUDA|No CUDA GPUs|NVIDIA driver|active drivers?|is_cuda|CUDA error|CUDA driver|device type cuda"
)
_HINT = " (judged on the CPU, in Triton's interpreter: take the device from an input, x.device, and do not name cuda)"


def hint(reason: str) -> str:
    """What to add to a reason that comes of there being no GPU; empty otherwise.

    >>> hint("it raised ValueError: 3")
    ''
    """
    if "inline_asm" in reason:
        return " (Triton's interpreter runs no inline assembly: judge this kernel on a GPU)"
    return _HINT if _ABOUT_CUDA.search(reason) else ""

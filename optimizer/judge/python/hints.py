"""What to add to the reason of a failure that comes of there being no GPU."""

from __future__ import annotations

import re

_ABOUT_GPUS = re.compile(r"\bcuda\b|\bgpus?\b|nvidia|active drivers?|is_cuda", re.IGNORECASE)
_BRANCHES = re.compile(r"\bdevice\.type\b|\bis_available\b|\bTRITON_INTERPRET\b")
_DEVICE = " (judged on the CPU, in Triton's interpreter: take the device from an input, x.device, and do not name cuda)"


def hint(reason: str) -> str:
    """What to add to the reason of a crash; empty if it has nothing to do with GPUs.

    >>> hint("it raised ValueError: 3")
    ''
    """
    if "Triton's interpreter" in reason:
        return ""
    if "inline_asm" in reason:
        return " (Triton's interpreter runs no inline assembly: judge this kernel on a GPU)"
    return _DEVICE if _ABOUT_GPUS.search(reason) else ""


def branch_hint(source: str) -> str:
    """What to add if a candidate launches no kernel here; empty if its source does not look at the device.

    >>> branch_hint("if x.device.type == 'cuda':")[:18]
    ' (judged on the CP'
    """
    if _BRANCHES.search(source):
        return " (judged on the CPU, in Triton's interpreter: launch the kernels whatever the device of the inputs)"
    return ""

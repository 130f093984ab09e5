"""What to add to the reason of a failure: where it comes of there being no GPU, or of how the module is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_ABOUT_GPUS = re.compile(r"\bcuda\b|\bgpus?\b|nvidia|active drivers?|is_cuda", re.IGNORECASE)
_BRANCHES = re.compile(r"\bdevice\.type\b|\bis_available\b|\bTRITON_INTERPRET\b")
_NAMED = 4  # weights in a reason
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


def module_hint(launches: Mapping[int, int], unmatched: Sequence[str]) -> str:
    """What to add to the reason of wrong numbers: a forward that launched nothing, weights that were not taken over.

    Args:
        launches: custom launches of a forward, by region.
        unmatched: weights of the task that no parameter of the model matches.

    >>> module_hint({0: 1}, [])
    ''
    >>> module_hint({0: 1}, ["proj.weight"])
    ' (no parameter of ModelNew matches weight proj.weight in name, shape and dtype)'
    """
    parts = []
    if launches and not any(launches.values()):
        parts.append("its forward launched none of its own kernels; a launch is kernel[grid](arguments)")
    if unmatched:
        names = ", ".join(unmatched[:_NAMED]) + (", ..." if len(unmatched) > _NAMED else "")
        plural = "weights" if len(unmatched) > 1 else "weight"
        parts.append(f"no parameter of ModelNew matches {plural} {names} in name, shape and dtype")
    return f" ({'; '.join(parts)})" if parts else ""

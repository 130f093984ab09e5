"""The screen: rules a source must keep before anything of it is compiled or run.

C++ and CUDA are read as tokens, Python as a syntax tree, never as plain text. The screen is a courtesy that tells a
policy at once what is not accepted and what would be; the defence is the worker's isolation and the checks.
"""

from __future__ import annotations

from optimizer.candidate import Candidate, Language
from optimizer.judge.screens.cpp import screen_cpp
from optimizer.judge.screens.python import screen_python
from optimizer.judge.screens.refusal import MAX_SOURCE_BYTES, Refusal

__all__ = ["MAX_SOURCE_BYTES", "Refusal", "screen"]


def screen(candidate: Candidate) -> Refusal | None:
    """The first rule a candidate breaks, or None."""
    if candidate.language is Language.CPP:
        return screen_cpp(candidate.source)
    return screen_python(candidate.source, extensions=candidate.language is Language.CUDA)

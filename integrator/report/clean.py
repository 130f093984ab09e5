"""What a terminal is shown: harmless text (:mod:`extractor.plain_text`), in whatever encoding the terminal has.

HTML escaping is separate and comes after this.
"""

import codecs
from typing import TextIO

from extractor.plain_text import one_line, plain

__all__ = ["ASCII_FALLBACK", "one_line", "plain", "tolerate_encoding"]

_LOOKALIKES = {
    "×": "x",
    "→": "->",
    "±": "+/-",
    "…": "...",
    "–": "-",
    "—": "-",
    "·": "*",
    "•": "*",
    "✓": "+",
    "✗": "x",
    "≤": "<=",
    "≥": ">=",
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
}
ASCII_FALLBACK = "kernelgraft_ascii"


def tolerate_encoding(*streams: TextIO) -> None:
    """Make text streams write a look-alike or ``?`` where their encoding lacks a character.

    A terminal in a Latin-1 or C locale then shows ``2.3x`` instead of ending a run with UnicodeEncodeError.
    """
    codecs.register_error(ASCII_FALLBACK, _lookalike)
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)  # absent on captured streams, which take any text
        if reconfigure is not None:
            reconfigure(errors=ASCII_FALLBACK)


def _lookalike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(_LOOKALIKES.get(char, "?") for char in bad), error.end

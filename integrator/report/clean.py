"""Text that came from a candidate, a model name or a log, made harmless before it is shown anywhere.

Terminal escape sequences and bidirectional overrides can repaint a screen or reorder source as it is read.
They are shown as what they are (``\\x1b``), never obeyed. HTML escaping is separate and comes after this.
"""

import codecs
import unicodedata
from typing import TextIO

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
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


def plain(text: str) -> str:
    """``text`` with control characters and bidirectional overrides spelled out; tab and newline stay.

    >>> plain("ok\\x1b[2J")
    'ok\\\\x1b[2J'
    """
    return "".join(_spell(char) for char in text)


def one_line(text: str, limit: int = 400) -> str:
    """:func:`plain` text on one line, cut after ``limit`` characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def tolerate_encoding(*streams: TextIO) -> None:
    """Make text streams write a look-alike or ``?`` where their encoding lacks a character.

    A terminal in a Latin-1 or C locale then shows ``2.3x`` instead of ending a run with UnicodeEncodeError.
    """
    codecs.register_error(ASCII_FALLBACK, _lookalike)
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)  # absent on captured streams, which take any text
        if reconfigure is not None:
            reconfigure(errors=ASCII_FALLBACK)


def _spell(char: str) -> str:
    if char in "\n\t" or (char.isprintable() and char not in _BIDI):
        return char
    if char == "\r" or unicodedata.category(char) == "Zs":
        return " "
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _lookalike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(_LOOKALIKES.get(char, "?") for char in bad), error.end

"""Text that came from a candidate, a model name or a log, made harmless before it is stored or shown anywhere.

Terminal escape sequences and bidirectional overrides can repaint a screen or reorder source as it is read, and half
a surrogate pair cannot be written as UTF-8. They are shown as what they are (``\\x1b``), never obeyed.
"""

import unicodedata

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain(text: str) -> str:
    """``text`` with control characters, bidirectional overrides and lone surrogates spelled out; tab and newline stay.

    >>> plain("ok\\x1b[2J")
    'ok\\\\x1b[2J'
    >>> plain("half \\ud800")
    'half \\\\ud800'
    """
    return text if text.isprintable() and text.isascii() else "".join(_spell(char) for char in text)


def one_line(text: str, limit: int = 400) -> str:
    """:func:`plain` text on one line, cut after ``limit`` characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def some_lines(text: str, limit: int) -> str:
    """:func:`plain` text with its lines kept; of more than ``limit`` characters, the first three quarters and the end.

    >>> some_lines("first" + "-" * 90 + "last", 16)
    'first-------\\n... (shortened)\\nlast'
    """
    if len(text) > limit:  # spelling out makes longer, never shorter
        text = f"{text[:limit]}\n{text[-limit:]}"
    lines = plain(text)
    if len(lines) <= limit:
        return lines
    head = limit * 3 // 4
    return f"{lines[:head]}\n... (shortened)\n{lines[head - limit :]}"


def _spell(char: str) -> str:
    if char in "\n\t" or (char.isprintable() and char not in _BIDI):
        return char
    if char == "\r" or unicodedata.category(char) == "Zs":
        return " "
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

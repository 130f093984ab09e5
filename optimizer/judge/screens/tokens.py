"""C++ and CUDA source as tokens: comments and strings can neither trip a rule nor hide from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from optimizer.judge.screens.refusal import Refusal


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


@dataclass(frozen=True)
class Ban:
    """Names that a rule does not accept, and what it accepts instead.

    ``called_only`` names count when they are called or follow ``::``; as plain names they may well be a variable.
    """

    rule: str
    names: frozenset[str]
    instead: str
    called_only: frozenset[str] = frozenset()


class Token(NamedTuple):
    """One token and the 1-based line it starts on; ``kind`` is name, string or other."""

    kind: str
    text: str
    line: int


# What is never closed reaches to the end: no compiler takes it, and looking for its end again and again is quadratic.
_LEXER = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?(?:\)(?P=tag)"|\Z))
    | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
    | (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    | (?P<name>[^\W\d]\w*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(source: str) -> Iterator[Token]:
    """The tokens of a C++ or CUDA source, without space and comments."""
    # Spliced lines are joined as the compiler joins them; the line count is kept by the newlines put back after.
    joined = re.sub(r"(?m)^((?:[^\n]*\\\r?\n)+)([^\n]*)", _unsplice, source)
    line = 1
    for match in _LEXER.finditer(joined):
        kind, text = match.lastgroup or "other", match.group()
        if kind == "tag":
            kind = "raw"
        if kind == "name":
            yield Token("name", text, line)
        elif kind in ("string", "raw"):
            yield Token("string", text, line)
        elif kind in ("other", "number", "character"):
            yield Token("other", text, line)
        line += text.count("\n")


def _unsplice(match: re.Match[str]) -> str:
    spliced = match.group(1)
    return re.sub(r"\\\r?\n", "", spliced) + match.group(2) + "\n" * spliced.count("\n")


class Include(NamedTuple):
    """A preprocessor line that brings in other text: the directive, the header's name, and its line."""

    directive: str
    header: str
    line: int


def includes(tokens: Sequence[Token]) -> Iterator[Include]:
    """Every ``#include`` and its kin (``include_next``, ``import``, ``embed``), also spelled ``%:``.

    A header that is not a literal (a macro) is given as it is written.
    """
    for i, token in enumerate(tokens):
        is_hash = token.text == "#" or (
            token.text == "%" and i + 1 < len(tokens) and tokens[i + 1].text == ":"
        )
        if not is_hash or (i and tokens[i - 1].line == token.line and tokens[i - 1].text != ":"):
            continue
        line = [t for t in tokens[i + 1 : i + 40] if t.line == token.line and t.text != ":"]
        directive = line[0].text if line else ""
        if directive in ("include", "include_next", "import", "embed"):
            name = "".join(t.text for t in line[1:])
            yield Include(directive, name, token.line)


def literal_header(name: str) -> str:
    """``cmath`` for ``<cmath>``; empty if the name is no literal."""
    return name[1:-1] if name[:1] in '<"' and len(name) > 2 else ""


def banned_name(tokens: Sequence[Token], bans: Sequence[Ban]) -> Refusal | None:
    """The first name that a ban covers."""
    for i, token in enumerate(tokens):
        if token.kind != "name":
            continue
        following = tokens[i + 1].text if i + 1 < len(tokens) else ""
        previous = tokens[i - 1].text if i else ""
        for ban in bans:
            if token.text not in ban.names:
                continue
            if token.text in ban.called_only and not (following == "(" or previous == ":"):
                continue
            return Refusal(ban.rule, token.line, f"`{token.text}` is not accepted; {ban.instead}")
    return None


_ATTRIBUTES = names(
    "constructor destructor ifunc section alias weakref cleanup init_priority __constructor__ __destructor__ __ifunc__"
)


def hooked_attribute(tokens: Sequence[Token], entry: str) -> Refusal | None:
    """Attributes that make code run, or replace code, outside the entry points named in ``entry``."""
    for i, token in enumerate(tokens):
        if token.text not in _ATTRIBUTES:
            continue
        before = [t.text for t in tokens[max(0, i - 12) : i]]
        if "__attribute__" in before or "__attribute" in before or "gnu" in before:
            detail = f"attribute `{token.text}` is not accepted; all work belongs in {entry}"
            return Refusal("no code outside the entry points", token.line, detail)
    return None

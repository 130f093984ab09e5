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
    texts = [token.text for token in tokens]
    own = {name for name in OWN if _defines(texts, name)}
    for i, token in enumerate(tokens):
        if token.kind != "name":
            continue
        for ban in bans:
            if token.text not in ban.names:
                continue
            if token.text in ban.called_only and (token.text in own or not _is_used(texts, i)):
                continue
            return Refusal(ban.rule, token.line, f"`{token.text}` is not accepted; {ban.instead}")
    return None


# Names that no accepted header declares: a file that defines such a function means its own.
OWN = names("connect socket")


def _is_used(texts: Sequence[str], i: int) -> bool:
    """Whether the name at ``i`` is called, as ``f(`` or ``(f)(``, or follows ``::``; not as a method of an object."""
    before, after = texts[max(0, i - 2) : i], texts[i + 1 : i + 3]
    if before[-1:] == ["."] or before == ["-", ">"]:
        return False
    return before[-1:] == [":"] or after[:1] == ["("] or (before[-1:] == ["("] and after == [")", "("])


def _defines(texts: Sequence[str], name: str) -> bool:
    """Whether a function of that name has a body here."""
    for i, text in enumerate(texts):
        if text != name or texts[i + 1 : i + 2] != ["("]:
            continue
        depth = 0
        for end in range(i + 1, min(i + 200, len(texts))):
            depth += (texts[end] == "(") - (texts[end] == ")")
            if not depth:
                rest = [t for t in texts[end + 1 : end + 4] if t not in ("const", "noexcept", "override")]
                if rest[:1] == ["{"]:
                    return True
                break
    return False


HOOKS = names(
    "constructor destructor ifunc section alias weakref cleanup init_priority __constructor__ __destructor__ __ifunc__ "
    "__section__ __alias__ __weakref__ __cleanup__ __init_priority__"
)
_HIDDEN_HOOKS = names(
    "constructor destructor ifunc init_priority __constructor__ __destructor__ __ifunc__ __init_priority__"
)


def hooked_attribute(tokens: Sequence[Token], entry: str) -> Refusal | None:
    """Attributes that make code run, or replace code, outside the entry points named in ``entry``."""
    for i, token in enumerate(tokens):
        if token.text in ("__attribute__", "__attribute"):
            inner = _enclosed(tokens, i + 1, "(", ")")
        elif token.text == "[" and [t.text for t in tokens[i + 1 : i + 2]] == ["["]:
            inner = _enclosed(tokens, i, "[", "]")
        elif token.text == "define":  # the attribute's name may be hidden behind a macro
            inner = [t for t in tokens[i : i + 200] if t.line == token.line and t.text in _HIDDEN_HOOKS]
        else:
            continue
        for name in inner:
            if name.text in HOOKS:
                detail = f"attribute `{name.text}` is not accepted; all work belongs in {entry}"
                return Refusal("no code outside the entry points", name.line, detail)
    return None


def _enclosed(tokens: Sequence[Token], start: int, opening: str, closing: str) -> Sequence[Token]:
    """The tokens from a bracket at ``start`` to the one that closes it; none if there is no bracket there."""
    depth = 0
    for end in range(start, min(start + 400, len(tokens))):
        depth += (tokens[end].text == opening) - (tokens[end].text == closing)
        if not depth:
            return tokens[start:end]
    return tokens[start : start + 400]

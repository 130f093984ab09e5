"""Names that the preprocessor makes by pasting: no rule sees them, so what could become a banned name is refused.

``kernel_##N`` is fine, since no banned name begins with ``kernel_``; ``A##B``, of two parameters, could be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from optimizer.judge.screens.refusal import Refusal
from optimizer.judge.screens.tokens import HOOKS, Ban, Token

_ALWAYS_PARAMETERS = frozenset({"__VA_ARGS__", "__VA_OPT__"})
_WORD = re.compile(r"[\w.']+")


def pasted_name(tokens: Sequence[Token], bans: Iterable[Ban]) -> Refusal | None:
    """The first ``##`` whose result could be a name of ``bans``, or an attribute that runs code by itself."""
    banned = HOOKS.union(*(ban.names for ban in bans))
    parameters: frozenset[str] = frozenset()
    pastes = dict(_pastes(tokens))
    name, part_of_own = "", -1
    for i, token in enumerate(tokens):
        if token.text == "define" and i and tokens[i - 1].text in ("#", ":"):
            parameters, part_of_own = _parameters(tokens, i), -1
            name = tokens[i + 1].text if i + 1 < len(tokens) else ""
        if i not in pastes:
            continue
        # An argument may be several tokens, of which each end is pasted on its own: then every ## must be harmless.
        sides = [t.text for t in (*tokens[max(0, i - 1) : i], *tokens[pastes[i] : pastes[i] + 1])]
        if any(side not in parameters and _is_harmless(side, banned) for side in sides):
            part_of_own = pastes[i]
            continue
        if i == part_of_own + 1 and _takes_single_tokens(tokens, name):
            part_of_own = pastes[i]  # `my_kernel_##A##_##B`: all one name, and its beginning is known
            continue
        detail = (
            f"`{'##'.join(sides)}` could spell any name; write names out, or paste to a part of your own "
            "(`my_kernel_##N`)"
        )
        return Refusal("no pasted names", token.line, detail)
    return None


def _pastes(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Where each ``##`` (or ``%:%:``) begins and ends."""
    texts = [token.text for token in tokens]
    i = 0
    while i < len(texts):
        for spelling in (["#", "#"], ["%", ":", "%", ":"], ["#", "%", ":"], ["%", ":", "#"]):
            if texts[i : i + len(spelling)] == spelling:
                yield i, i + len(spelling)
                i += len(spelling) - 1
                break
        i += 1


def _parameters(tokens: Sequence[Token], define: int) -> frozenset[str]:
    """The parameters of the macro that is defined at ``define``; empty for one without."""
    found = set(_ALWAYS_PARAMETERS)
    rest = tokens[define + 2 :][:200]
    if rest and rest[0].text == "(":
        for token in rest:
            if token.text == ")":
                break
            if token.kind == "name":
                found.add(token.text)
    return frozenset(found)


def _takes_single_tokens(tokens: Sequence[Token], macro: str) -> bool:
    """Whether every use of a macro names it outside of other macros and gives it one token for each parameter."""
    uses = [i for i, token in enumerate(tokens) if token.text == macro and token.kind == "name"]
    defines = {token.line for token in tokens if token.text == "define"}
    for use in uses:
        texts = [token.text for token in tokens[use + 1 : use + 64]]
        if use and tokens[use - 1].text == "define":
            if "." in texts[: texts.index(")")] if ")" in texts else True:
                return False  # variadic: several tokens in one parameter
            continue
        if tokens[use].line in defines or texts[:1] != ["("] or ")" not in texts:
            return False
        inner = texts[1 : texts.index(")")]
        if any(text != "," for text in inner[1::2]) or not all(_WORD.fullmatch(text) for text in inner[::2]):
            return False
    return True


def _is_harmless(word: str, banned: frozenset[str]) -> bool:
    """True if no banned name holds this part; punctuation, as in ``, ##__VA_ARGS__``, makes no name at all."""
    if not _WORD.fullmatch(word):
        return True
    return not any(word in name for name in banned)

"""What a screen answers, and the rules of text that every language shares."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_SOURCE_BYTES = 256 << 10


class Refusal(NamedTuple):
    """Which rule was broken, where (1-based line, 0 for the whole source), and what would be accepted."""

    rule: str
    line: int
    detail: str

    @property
    def reason(self) -> str:
        """The verdict's sentence."""
        where = f"line {self.line}: " if self.line else ""
        return f"refused by rule '{self.rule}': {where}{self.detail}"


def unreadable(source: str) -> Refusal | None:
    """Refuses sources that are too long or that no compiler could be given as UTF-8 text."""
    if len(source.encode("utf-8", errors="surrogatepass")) > MAX_SOURCE_BYTES:
        return Refusal("source size", 0, f"the source is over {MAX_SOURCE_BYTES >> 10} KiB")
    if re.search("[\ud800-\udfff]", source):
        return Refusal("source text", 0, "the source contains half a surrogate pair, which UTF-8 cannot hold")
    if "\0" in source:
        return Refusal("source text", 0, "the source contains a NUL character")
    return None

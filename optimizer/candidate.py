"""A candidate: source text in one language, identified by its content."""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property


class Language(StrEnum):
    """What a candidate is written in."""

    CPP = "cpp"
    TRITON = "triton"
    CUDA = "cuda"


@dataclass(frozen=True)
class Candidate:
    """Source text proposed for one task. Two candidates with equal language and source are the same one.

    ``notes`` is free text of whoever wrote it (schedule knobs, a summary); it is stored, shown, and never judged.
    """

    language: Language
    source: str
    notes: dict[str, str] = field(default_factory=dict, compare=False, hash=False)

    @cached_property
    def sha(self) -> str:
        """sha256 over language and source: the content address in stores and caches."""
        return hashlib.sha256(f"{self.language.value}\0{self.source}".encode()).hexdigest()

"""Read a candidate out of a completion: find the fenced block that is the answer, or say why there is none.

Rules. Earlier chain of thought (up to the last ``</think>``) is not looked at. Blocks tagged with the wanted
language come first, untagged ones second, others never. Of several, the last complete one that defines the entry
point wins, else the last complete one. An answer cut off inside its only block is a failure, never half a kernel.
"""

import re
from dataclasses import dataclass

from optimizer.candidate import Candidate, Language
from optimizer.policies.protocol import Completion, StopReason

MAX_SOURCE_BYTES = 1 << 20
SUMMARY_CHARACTERS = 600

TAGS: dict[Language, frozenset[str]] = {
    Language.CPP: frozenset({"cpp", "c++", "cc", "cxx", "hpp"}),
    Language.TRITON: frozenset({"python", "py", "python3", "triton"}),
    Language.CUDA: frozenset({"python", "py", "python3"}),
}
ENTRY_POINTS: dict[Language, str] = {
    Language.CPP: "kg_forward",
    Language.TRITON: "ModelNew",
    Language.CUDA: "ModelNew",
}

_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^\n]*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block. ``tag`` is the first word of its info string in lower case, ``""`` if there is none."""

    tag: str
    source: str
    complete: bool
    start: int  # line of the opening fence
    end: int  # line of the closing fence, or one past the last line


@dataclass(frozen=True)
class Answer:
    """What a completion amounts to: a candidate with a short summary, or the failure a policy is told."""

    candidate: Candidate | None
    summary: str = ""
    failure: str = ""


def clean_text(text: str) -> str:
    """Text as it is stored and parsed: one kind of line ending, and no lone surrogates (which UTF-8 cannot hold)."""
    unified = text.replace("\r\n", "\n").replace("\r", "\n")
    return unified.encode("utf-8", "replace").decode("utf-8")


def fenced_blocks(text: str) -> list[Block]:
    """All fenced blocks of a Markdown text, in order; the last one may be incomplete."""
    blocks: list[Block] = []
    lines = text.split("\n")
    opened: tuple[int, str, str] | None = None  # line, fence, tag
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if opened is None:
            # A backtick in the info string makes it inline code, not a fence.
            if match and not (match["fence"][0] == "`" and "`" in match["info"]):
                words = match["info"].strip().lower().split()
                opened = (number, match["fence"], words[0].strip("{}.,") if words else "")
        elif match and not match["info"].strip() and match["fence"].startswith(opened[1]):
            start, _, tag = opened
            blocks.append(Block(tag, "\n".join(lines[start + 1 : number]), True, start, number))
            opened = None
    if opened is not None:
        start, _, tag = opened
        blocks.append(Block(tag, "\n".join(lines[start + 1 :]), False, start, len(lines)))
    return blocks


def parse(completion: Completion, language: Language) -> Answer:
    """The candidate in a completion, its notes attached, or a failure that says what to do instead.

    >>> parse(Completion("Fused.\\n```cpp\\nint kg_forward;\\n```"), Language.CPP).candidate.source
    'int kg_forward;\\n'
    >>> parse(Completion("I would fuse the two loops."), Language.CPP).failure
    'the answer holds no code block; answer with one complete ```cpp block'
    """
    wanted = f"answer with one complete ```{wanted_tag(language)} block"
    text = clean_text(completion.text)
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    elif "<think>" in text:
        return Answer(None, failure=f"the answer ended inside its thinking; {wanted}")
    blocks = fenced_blocks(text)
    usable = [b for b in blocks if b.tag in TAGS[language]] or [b for b in blocks if not b.tag]
    complete = [b for b in usable if b.complete and b.source.strip()]
    if not complete:
        return Answer(None, failure=f"{_why_none(blocks, usable, completion.stop_reason)}; {wanted}")
    entry = ENTRY_POINTS[language]
    chosen = ([b for b in complete if entry in b.source] or complete)[-1]
    source = chosen.source.rstrip() + "\n"
    if len(source.encode()) > MAX_SOURCE_BYTES:
        return Answer(None, failure=f"the kernel is longer than {MAX_SOURCE_BYTES} bytes; {wanted}")
    candidate = Candidate(language, source, dict(completion.notes))
    return Answer(candidate, summary=_summary(text, chosen, completion.notes))


def wanted_tag(language: Language) -> str:
    """The language tag a policy is asked to use on its fence."""
    return "cpp" if language is Language.CPP else "python"


def _why_none(blocks: list[Block], usable: list[Block], stop: StopReason) -> str:
    if any(not block.complete for block in usable):
        return "the code block was cut off before its closing fence" + (
            " (the token limit was reached)" if stop is StopReason.LENGTH else ""
        )
    if usable:
        return "the code block is empty"
    if blocks:
        found = ", ".join(sorted({block.tag for block in blocks}))
        return f"the answer is in another language ({found})"
    return "the answer holds no code block"


def _summary(text: str, chosen: Block, notes: dict[str, str]) -> str:
    """The policy's own words on its kernel: what follows the block, else what precedes it, else its notes."""
    lines = text.split("\n")
    after = " ".join(" ".join(lines[chosen.end + 1 :]).split())
    before = " ".join(" ".join(lines[: chosen.start]).split())
    words = after or before or ", ".join(f"{key}={value}" for key, value in sorted(notes.items()))
    return words if len(words) <= SUMMARY_CHARACTERS else words[: SUMMARY_CHARACTERS - 1] + "…"

"""compute-sanitizer: its command lines, and its report as one sentence. Pure functions of text.

A report is lines that begin with ``=========``. An error is a headline, then what belongs to it, indented further::

    ========= Invalid __global__ write of size 4 bytes
    =========     at scale(float const*, float*, int)+0xc0 in candidate.py:12
    =========     by thread (100,0,0) in block (0,0,0)
    =========     Access to 0x7f3f1e800190 is out of bounds
    =========     and is 1 bytes after the nearest allocation at 0x7f3f1e800000 of size 400 bytes
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from optimizer.judge.device.standalone import DONE, WORKLOAD
from optimizer.judge.profile import short_name

NAME = "compute-sanitizer"
ERRORS_FOUND = 86  # exit status we ask for; the program's own otherwise
_PADDING = 4096  # bytes behind every allocation that belong to none: neighbours would hide a small overrun
_LINE = re.compile(r"^=========( *)(.*)$")
_FAULT = re.compile(
    r"Invalid |Misaligned |Illegal |Race reported|Hardware |Stack |Unknown error|.* exception"
)
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_RACE_ERRORS = re.compile(r"\((\d+) errors?,")
_PLACE = re.compile(r"^(?:at|and) (?:\w+ access at )?(.+)$")
_HEADLINE_PLACE = re.compile(r" at (.+)$")
_BESIDE = re.compile(
    r"and is (\d+) bytes (after|before) the nearest allocation at 0x[0-9a-f]+ of size (\d+) bytes"
)
_SEVERITY = re.compile(r"^(?:Error|Warning|Info(?:rmation)?): (?=Race)")


class Pass(StrEnum):
    """One run of the tool, by the name of the tool within it."""

    MEMORY = "memcheck"
    RACES = "racecheck"


class DidNotRun(Exception):
    """The tool gave no answer: why, in one sentence."""


@dataclass(frozen=True)
class _Error:
    """One error of a report: headline, what belongs to it, and the workload that was being called."""

    headline: str
    details: tuple[str, ...]
    workload: str


def sanitizer_command(tool: str, which: Pass, program: list[str]) -> list[str]:
    """``program`` under compute-sanitizer at path ``tool``."""
    options = ["--tool", which.value, "--error-exitcode", str(ERRORS_FOUND), "--print-limit", "20"]
    options += ["--target-processes", "application-only"]
    if which is Pass.MEMORY:
        # Libraries try calls that may fail; what matters is what kernels do.
        options += ["--report-api-errors", "no", "--padding", str(_PADDING)]
    return [tool, *options, *program]


def finding(output: str, status: int) -> str:
    """What is wrong with the candidate, in one sentence; empty if the tool found nothing.

    >>> report = '''kernelgraft-workload decode
    ... ========= COMPUTE-SANITIZER
    ... ========= Invalid __global__ write of size 4 bytes
    ... =========     at scale(float const*, float*, int)+0xc0
    ... =========     Access to 0x7f3f1e800190 is out of bounds
    ... =========     and is 1 bytes after the nearest allocation at 0x7f3f1e800000 of size 400 bytes
    ... ========= ERROR SUMMARY: 1 error'''
    >>> first, second = finding(report, 86).split(", ")
    >>> first
    'compute-sanitizer: Invalid __global__ write of size 4 bytes in kernel scale'
    >>> second
    '1 bytes after an allocation of 400 bytes (workload decode)'

    Args:
        output: everything the tool and the program under it wrote.
        status: the tool's exit status.

    Raises:
        DidNotRun: the tool says that it cannot run here, or the program did not come to its end under it.
    """
    errors = [error for error in _errors(output) if _is_fault(error)]
    if errors:
        return _sentence(errors[0])
    if status == 0 and DONE in output.splitlines() and _clean(output):
        return ""
    raise DidNotRun(_excuse(output, status))


def _errors(output: str) -> Iterator[_Error]:
    workload, headline, details = "", "", list[str]()
    for line in output.splitlines():
        if line.startswith(WORKLOAD):
            workload = line.removeprefix(WORKLOAD)
        matched = _LINE.match(line)
        if matched is None:
            continue
        indent, text = len(matched[1]), matched[2].strip()
        if indent > 1 and headline:
            details.append(text)
            continue
        if headline:
            yield _Error(headline, tuple(details), workload)
        headline, details = text, []
    if headline:
        yield _Error(headline, tuple(details), workload)


def _is_fault(error: _Error) -> bool:
    """Of the candidate, that is: not the tool's banner, summary, remarks, nor a hazard it only warns of."""
    if error.headline.startswith(("Warning:", "Info")):
        return False
    return _FAULT.match(_SEVERITY.sub("", error.headline)) is not None


def _sentence(error: _Error) -> str:
    headline = _SEVERITY.sub("", error.headline)
    places = [matched[1] for detail in error.details if (matched := _PLACE.match(detail))]
    if race := _HEADLINE_PLACE.search(headline):
        places.insert(0, race[1])
        headline = headline[: race.start()]
    text = f"{NAME}: {headline}"
    if headline.startswith("Race"):
        text = f"{NAME}: race in shared memory"
    if places:
        text += f" in {_kernel(places[0])}"
    if beside := next((found for d in error.details if (found := _BESIDE.search(d))), None):
        text += f", {beside[1]} bytes {beside[2]} an allocation of {beside[3]} bytes"
    elif any("misaligned" in detail for detail in error.details):
        text += ", at a misaligned address"
    return f"{text} (workload {error.workload})" if error.workload else text


def _kernel(place: str) -> str:
    """``kernel NAME``, and the candidate's line if the place names it.

    >>> _kernel("scale(float const*, int)+0xc0 in /tmp/candidate.py:12")
    'kernel scale at line 12 of the candidate'
    >>> _kernel("0x1a0 in cuda.cu:7:scale(float*, int)")
    'kernel scale'
    """
    name, _, source = place.partition(" in ")
    if name.startswith("0x"):
        name = source.rpartition(":")[2] if ":" in source else source
    name = re.sub(r"\+0x[0-9a-f]+$", "", name)
    line = re.search(r"candidate\.py:(\d+)", source)
    return f"kernel {short_name(name)}" + (f" at line {line[1]} of the candidate" if line else "")


def _clean(output: str) -> bool:
    """True if the report's summary counts no error; hazards that are warnings do not count."""
    for line in reversed(output.splitlines()):
        if summary := _SUMMARY.search(line):
            races = _RACE_ERRORS.search(line)
            return int(races[1] if races else summary[1]) == 0
    return False


def _excuse(output: str, status: int) -> str:
    """Why there is no answer: the tool's own words, or the last ones of the program."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    own = [matched[2].strip() for line in lines if (matched := _LINE.match(line))]
    words = [text for text in own if re.match(r"(?:Internal |Sanitizer )*(?:Error|Warning)\b", text, re.I)]
    words = [text for text in words if not _SUMMARY.match(text)]
    if words:
        return words[0].partition(":")[2].strip() or words[0]
    others = [line for line in lines if not line.startswith(("=========", WORKLOAD, DONE))]
    last = f": {others[-1][:200]}" if others else ""
    return f"the candidate ended with status {status} under it{last}"

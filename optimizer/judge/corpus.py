"""The corpus: small candidates with a stated answer each, honest ones, cheats and faults.

A case is one source file that starts with a comment of ``key: value`` lines (``//`` in C++, ``#`` in Python)::

    // task: silu_gate                 a KernelBench file of the corpus' folder tasks/
    // kind: cheat                     or honest
    // expect: wrong,crashed           the outcomes that are right, any one of them
    // reason: never written           a pattern the verdict's reason must hold; every cheat has one
    // screen: off                     optional: skip the screen, so that what stands behind it is tested
    // at_most: 1.5                    optional: or correct, with at most this speedup: then cheating gains little
    // profile: paper                  optional: the numerical rule, strict unless it says so
    // devices: cpu                    optional: where the answer holds; C++ cpu, Triton cpu,cuda, CUDA cuda
    // why: one line on what it tries

The language is the folder's name: ``LANGUAGE/{honest,cheats}/NAME.{cpp,py}``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from extractor.errors import KernelgraftError
from optimizer.candidate import Candidate, Language
from optimizer.judge.settings import Profile
from optimizer.judge.verdict import Outcome, Verdict

_DEVICES = {Language.CPP: "cpu", Language.TRITON: "cpu,cuda", Language.CUDA: "cuda"}
_SUFFIXES = {Language.CPP: ".cpp", Language.TRITON: ".py", Language.CUDA: ".py"}
_REQUIRED = frozenset({"task", "kind", "expect", "why"})
_OPTIONAL = frozenset({"reason", "screen", "at_most", "profile", "devices"})
_INSTALLED = "kernelgraft-corpus"  # the folder's name below the environment's share/; see pyproject.toml


class Kind(StrEnum):
    """Whether a case must pass or must be caught."""

    HONEST = "honest"
    CHEAT = "cheat"


class BrokenCase(KernelgraftError):
    """A file of the corpus whose header does not say what is needed."""

    template = "corpus case {path}: {problem}"


class NoCorpus(KernelgraftError):
    """The corpus is not where it is kept."""

    template = "no corpus of candidates in {path}; install kernelgraft from a wheel or run it from a checkout"


@dataclass(frozen=True)
class Case:
    """One candidate and the answer it must get. ``name`` is its path in the corpus without suffix."""

    name: str
    task: str
    kind: Kind
    expected: frozenset[Outcome]
    reason: str  # a regular expression, empty if any reason will do
    why: str
    screening: bool
    profile: Profile
    devices: tuple[str, ...]
    candidate: Candidate
    at_most: float | None = None  # speedup that a cheat may show if it is correct; None if it must not be

    def objection(self, verdict: Verdict) -> str:
        """What is wrong with a verdict on this case; empty if it is the stated one."""
        if self.at_most is not None and verdict.correct:
            if verdict.speedup is None or verdict.speedup <= self.at_most:
                return ""
            return f"{self.name}: it gains more than {self.at_most:.3g}x by cheating: {verdict.reason}"
        if verdict.outcome not in self.expected:
            stated = " or ".join(sorted(self.expected))
            return f"{self.name}: {verdict.outcome.value} instead of {stated}: {verdict.reason}"
        if self.kind is Kind.CHEAT and (verdict.correct or verdict.speedup is not None):
            return (
                f"{self.name}: it is {verdict.outcome.value} with speedup {verdict.speedup}: {verdict.reason}"
            )
        if not re.search(self.reason, verdict.reason):
            return f"{self.name}: the reason does not match {self.reason!r}: {verdict.reason}"
        return ""


def corpus_folder() -> Path:
    """Where the corpus is: in the checkout, or among the installed distribution's files.

    Raises:
        NoCorpus: in neither.
    """
    root = Path(__file__).resolve().parents[2]
    checkout = root / "tests" / "judge" / "corpus"
    for folder in (checkout, *_installed(root)):
        if (folder / "tasks").is_dir():
            return folder
    raise NoCorpus(path=checkout)


def _installed(root: Path) -> Iterator[Path]:
    """Where installers put it: what they wrote down, and beside the packages (``pip install --target``)."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        for file in metadata.files("kernelgraft") or []:
            if file.parent.parts[-2:] == (_INSTALLED, "tasks"):
                yield Path(str(file.locate())).resolve().parents[1]
                break
    yield root / "share" / _INSTALLED


def load_corpus(folder: Path | None = None) -> list[Case]:
    """All cases, by name. Raises BrokenCase for a file that states no usable answer, NoCorpus if there are none."""
    folder = folder or corpus_folder()
    cases = [load_case(path, folder) for path in _sources(folder)]
    if not cases:
        raise NoCorpus(path=folder)
    return cases


def task_file(case: Case, folder: Path) -> Path:
    """The KernelBench file of a case's task."""
    return folder / "tasks" / f"{case.task}.py"


def load_case(path: Path, folder: Path) -> Case:
    """One case of the corpus in ``folder``. Raises BrokenCase."""
    language = Language(path.relative_to(folder).parts[0])
    source = path.read_text(encoding="utf-8")
    header = _header(path, source)
    try:
        kind = Kind(header["kind"])
        expected = frozenset(Outcome(word) for word in _words(header["expect"]))
        profile = Profile(header.get("profile", Profile.STRICT.value))
        re.compile(header.get("reason", ""))
        at_most = float(header["at_most"]) if "at_most" in header else None
    except (ValueError, re.error) as error:
        raise BrokenCase(path=path, problem=str(error)) from error
    case = Case(
        name=path.relative_to(folder).with_suffix("").as_posix(),
        task=header["task"],
        kind=kind,
        expected=expected,
        reason=header.get("reason", ""),
        why=header["why"],
        screening=header.get("screen", "on") != "off",
        profile=profile,
        devices=tuple(_words(header.get("devices", _DEVICES[language]))),
        candidate=Candidate(language, source),
        at_most=at_most,
    )
    if problem := _inconsistency(case, folder):
        raise BrokenCase(path=path, problem=problem)
    return case


def _sources(folder: Path) -> Iterator[Path]:
    for language, suffix in _SUFFIXES.items():
        yield from sorted((folder / language.value).glob(f"*/*{suffix}"))


def _header(path: Path, source: str) -> dict[str, str]:
    """The keys of the leading comment."""
    marker = "//" if path.suffix == ".cpp" else "#"
    header: dict[str, str] = {}
    for line in source.splitlines():
        if not line.startswith(marker):
            break
        key, colon, value = line.removeprefix(marker).partition(":")
        if not colon:
            raise BrokenCase(path=path, problem=f"the header line {line!r} has no key")
        header[key.strip()] = value.strip()
    missing, unknown = _REQUIRED - header.keys(), header.keys() - _REQUIRED - _OPTIONAL
    if missing or unknown:
        words = [f"no {key}" for key in sorted(missing)] + [f"unknown key {key}" for key in sorted(unknown)]
        raise BrokenCase(path=path, problem=f"its header has {', '.join(words)}")
    return header


def _words(text: str) -> Sequence[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def _inconsistency(case: Case, folder: Path) -> str:
    if not task_file(case, folder).is_file():
        return f"there is no task {case.task}"
    if case.kind is Kind.HONEST and case.expected != {Outcome.CORRECT}:
        return "an honest case expects correct and nothing else"
    if case.kind is Kind.CHEAT and (Outcome.CORRECT in case.expected or not case.expected):
        return "a cheat expects outcomes other than correct"
    if case.kind is Kind.HONEST and case.at_most is not None:
        return "an honest case may gain whatever it can"
    if case.kind is Kind.CHEAT and not case.reason:
        return "a cheat states the reason it is given"
    if Path(case.name).parts[1] != {Kind.HONEST: "honest", Kind.CHEAT: "cheats"}[case.kind]:
        return f"its kind {case.kind.value} is not that of its folder"
    return ""

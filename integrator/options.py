"""Command-line text turned into the checked settings of each stage; nothing heavy is imported here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extractor.errors import UsageError
from extractor.families import Family
from integrator.ledger_schema import Rung
from optimizer.candidate import Language
from optimizer.judge.settings import JudgeSettings, Profile
from optimizer.search import Budget


class BadBatch(UsageError):
    """A batch size that is no positive number."""

    template = "batch {text!r} is not a positive whole number; give one or several, as in --batch 1,4"


class UnknownFamily(UsageError):
    """A family neither known by name nor by letter nor by tag."""

    template = "unknown family {text!r}; choose from: {known}"


class BadJudgeOption(UsageError):
    """An option of ``judge`` that names nothing."""

    template = "--{option} {text!r} is unknown; choose from: {known}"


class NeedsDevice(UsageError):
    """An option of ``judge`` that means nothing on the CPU."""

    template = "--{option} looks at kernels on a GPU; add --device cuda"


class TooManyThreads(UsageError):
    """More threads than cores: their times would mean nothing, and far too many cannot even be started."""

    template = (
        "--threads {threads} is more than the {cores} cores there are for kernelgraft; give at most {cores}"
    )


class BadLimit(UsageError):
    """A time limit that is no number of seconds a judge can wait."""

    template = "--limit {seconds:g} is out of range; give seconds from 1 to {most:g}"


MAX_LIMIT_S = 3600.0  # of one verdict


def checked_threads(threads: int) -> int:
    """``threads``, if the machine has as many cores. Raises TooManyThreads."""
    cores = len(os.sched_getaffinity(0))
    if threads > cores:
        raise TooManyThreads(threads=threads, cores=cores)
    return threads


def checked_limit(seconds: float) -> float:
    """``seconds``, if a judge can wait so long; NaN and infinity it cannot. Raises BadLimit."""
    if not 1.0 <= seconds <= MAX_LIMIT_S:
        raise BadLimit(seconds=seconds, most=MAX_LIMIT_S)
    return seconds


@dataclass(frozen=True)
class ExtractOptions:
    """What to extract. Lengths are in tokens; ``attention`` may be ``auto``."""

    model: str
    device: str
    dtype: str
    attention: str
    batches: tuple[int, ...]
    prompt: int
    tokens: int
    families: tuple[Family, ...] | None
    threads: int
    seed: int
    copy_weights: bool

    @property
    def scope(self) -> str:
        """What, besides the run's manifest, decides which tasks exist: equal scopes give equal tasks."""
        names = ",".join(self.families) if self.families else "all"
        return f"families={names} copied={self.copy_weights}"


@dataclass(frozen=True)
class SearchOptions:
    """How to search."""

    policy: str
    budget: Budget
    families: tuple[Family, ...] | None
    seed: int
    threads: int
    resume: bool
    include_sick: bool = False


@dataclass(frozen=True)
class LedgerOptions:
    """How to measure the whole model. ``rungs`` and ``rounds`` None are the integrator's defaults."""

    rungs: tuple[Rung, ...] | None
    rounds: int | None
    keep_all: bool


def extract_options(
    *,
    model: str,
    device: str,
    dtype: str,
    attention: str,
    batch: Sequence[str],
    prompt: int,
    tokens: int,
    families: Sequence[str] | None,
    threads: int,
    seed: int,
    copy_weights: bool,
) -> ExtractOptions:
    """Options of `extract`. Raises BadBatch, UnknownFamily, TooManyThreads."""
    return ExtractOptions(
        model=model,
        device=device,
        dtype=dtype,
        attention=attention,
        batches=parse_batches(batch),
        prompt=prompt,
        tokens=tokens,
        families=parse_families(families),
        threads=checked_threads(threads),
        seed=seed,
        copy_weights=copy_weights,
    )


def search_options(
    *,
    policy: str,
    budget: str,
    families: Sequence[str] | None,
    seed: int,
    threads: int,
    resume: bool,
    include_sick: bool = False,
) -> SearchOptions:
    """Options of `optimize`. Raises BadBudget, UnknownFamily, TooManyThreads."""
    return SearchOptions(
        policy=policy,
        budget=Budget.parse(budget),
        families=parse_families(families),
        seed=seed,
        threads=checked_threads(threads),
        resume=resume,
        include_sick=include_sick,
    )


def ledger_options(*, rungs: Sequence[str] | None, rounds: int | None, keep_all: bool) -> LedgerOptions:
    """Options of `integrate`. Raises UnknownRung."""
    if not rungs:
        return LedgerOptions(rungs=None, rounds=rounds, keep_all=keep_all)
    from integrator.rungs import parse_rungs

    return LedgerOptions(rungs=parse_rungs(list(words(rungs))), rounds=rounds, keep_all=keep_all)


def words(texts: Iterable[str]) -> Iterable[str]:
    """The words of repeated and comma-separated options.

    >>> list(words(["1,4", "8"]))
    ['1', '4', '8']
    """
    return (word.strip() for text in texts for word in text.split(",") if word.strip())


def parse_batches(texts: Sequence[str]) -> tuple[int, ...]:
    """Batch sizes, ascending, once each. Raises BadBatch.

    >>> parse_batches(["4,1", "4"])
    (1, 4)
    """
    sizes = set()
    for word in words(texts):
        if not (word.isascii() and word.isdigit()) or int(word) < 1:
            raise BadBatch(text=word)
        sizes.add(int(word))
    if not sizes:
        raise BadBatch(text=",".join(texts))
    return tuple(sorted(sizes))


def parse_families(texts: Sequence[str] | None) -> tuple[Family, ...] | None:
    """Families by name, by the paper's letter or by the tag that tables show, in letter order; None means all.

    >>> [family.value for family in parse_families(["LM,A"])]
    ['ffn_down', 'lm_head']

    Raises:
        UnknownFamily: the sentence lists tags and names.
    """
    from integrator.report.schema import tag

    found: set[Family] = set()
    for word in words(texts or ()):
        names = {f: {f.value, tag(f).lower(), f.letter.lower()} - {"+"} for f in Family}
        matches = [family for family in Family if word.lower() in names[family]]
        if not matches:
            known = ", ".join(f"{tag(family)} {family.value}" for family in Family)
            raise UnknownFamily(text=word, known=known)
        found.update(matches)
    return tuple(sorted(found, key=lambda family: family.order)) or None


def judge_options(
    *,
    device: str,
    language: str | None,
    tolerance: str,
    threads: int,
    timing: bool,
    profile: bool,
    sanitize: bool,
    ncu: bool,
    limit: float,
) -> tuple[JudgeSettings, Language | None]:
    """A judge's settings and the candidate's language. Raises BadJudgeOption, NeedsDevice, BadLimit, TooManyThreads."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise BadJudgeOption(option="device", text=device, known="cpu, cuda, cuda:0")
    for option, wanted in (("sanitize", sanitize), ("ncu", ncu)):
        if wanted and device == "cpu":
            raise NeedsDevice(option=option)
    if tolerance not in list(Profile):
        raise BadJudgeOption(option="tolerance", text=tolerance, known=", ".join(Profile))
    if language is not None and language not in list(Language):
        raise BadJudgeOption(option="language", text=language, known=", ".join(Language))
    settings = JudgeSettings(
        profile=Profile(tolerance),
        device=device,
        threads=checked_threads(threads),
        timing=timing,
        profiling=profile,
        sanitize=sanitize,
        ncu=ncu,
        run_limit_s=checked_limit(limit),
    )
    return settings, Language(language) if language else None

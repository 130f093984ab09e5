"""The judge judged: every case of the corpus must get its stated answer, and nothing may be left behind.

What ``kernelgraft judge --self-test`` runs. Candidates of one task share one open judge, as in a search.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from pydantic import BaseModel, ConfigDict

from extractor.errors import UsageError
from extractor.kernelbench import import_kernelbench
from extractor.progress import Progress, SilentProgress
from optimizer.candidate import Language
from optimizer.judge.corpus import Case, Kind, corpus_folder, load_corpus, task_file
from optimizer.judge.judge import Judge, UnsupportedLanguage, require_device, require_judgeable
from optimizer.judge.leftovers import watched
from optimizer.judge.python.spawn import WarmPool
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.verdict import Outcome, Verdict

# Every answer of the corpus is clear-cut: short measurements give it, and what hangs need not hang for long.
_TIMING_SECONDS = 0.03
_NATIVE_LIMIT_S, _NATIVE_HANG_S, _NATIVE_LOAD_S = 6.0, 2.0, 2.0
_PYTHON_LIMIT_S, _PYTHON_HANG_S = 20.0, 6.0


class NothingMatches(UsageError):
    """A filter that leaves no case of the corpus."""

    template = (
        "nothing matches {text!r}: a case has a name such as cpp/cheats/zeros, and --only takes a part of it"
    )


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class Honest(_Record):
    """Candidates that must pass, by case; with repetitions a case counts once and must pass each time."""

    total: int = 0
    passed: int = 0


class Cheats(_Record):
    """Cheats and faults that must get their stated answer, counted likewise."""

    total: int = 0
    caught: int = 0


class SelfTestReport(_Record):
    """What the self-test found. ``evaluations_per_minute`` covers building and judging, not opening judges."""

    honest: Honest
    cheats: Cheats
    evaluations_per_minute: float
    walls: tuple[str, ...]
    missing_walls: tuple[str, ...]
    device: str
    skipped: tuple[str, ...] = ()  # cases that cannot be judged on this device, counted by language and cause
    failures: tuple[str, ...] = ()  # one sentence each
    left_behind: tuple[str, ...] = ()  # processes, descriptors, files
    repetitions: int = 1
    unsteady: tuple[
        str, ...
    ] = ()  # cases that got several outcomes, all of them stated ones unless it is a failure
    # How far repeated speedups of one honest case lie apart: (largest - smallest) / median, of the widest case.
    speedup_spread: float | None = None
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        """Whether there were cases, each got its answer every time, and nothing is left."""
        counted = self.honest.total + self.cheats.total
        return counted > 0 and not (self.failures or self.left_behind)


@dataclass
class _Tally:
    """Verdicts as they come in."""

    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    objections: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, case: Case, verdict: Verdict, seconds: float) -> None:
        """Count one verdict that took so long."""
        self.verdicts.setdefault(case.name, []).append(verdict)
        self.seconds += seconds
        if objection := case.objection(verdict):
            self.objections.setdefault(case.name, objection)


def run(
    settings: JudgeSettings | None = None,
    *,
    device: str = "cpu",
    filter: str = "",
    repeat: int = 1,
    progress: Progress | None = None,
) -> SelfTestReport:
    """Judge the corpus.

    Args:
        settings: limits and threads; measuring time and limits are shortened to what clear-cut answers need.
        device: where candidates run; cases of other devices are reported as skipped.
        filter: only cases whose name (``cpp/cheats/zeros``) contains this.
        repeat: judge everything so many times.

    Raises:
        NoDevice: there is no such device here.
        NothingMatches: no case's name contains ``filter``.
        BrokenCase, NoCorpus: the corpus is damaged or missing.
        NotKernelBench, NotEnoughMemory, NoCompiler: a task cannot be opened here.
    """
    started = time.monotonic()
    settings = replace(settings or JudgeSettings(), device=device)
    progress = progress or SilentProgress()
    require_device(device)
    folder = corpus_folder()
    cases, skipped = _judgeable(load_corpus(folder), device, filter)
    if not cases and not skipped:
        raise NothingMatches(text=filter)
    tally = _Tally()
    with watched() as leftovers, WarmPool() as pool:
        progress.start("self-test", len(cases) * repeat)
        try:
            for group in _groups(cases):
                _judge(group, settings, pool, folder, repeat, tally, progress)
        finally:
            progress.finish()
    return _report(
        cases,
        tally,
        skipped,
        leftovers.found,
        device=device,
        repeat=repeat,
        seconds=time.monotonic() - started,
    )


def _judgeable(cases: Sequence[Case], device: str, wanted: str) -> tuple[list[Case], tuple[str, ...]]:
    chosen: list[Case] = []
    skipped: dict[str, int] = {}
    for case in cases:
        if wanted not in case.name:
            continue
        cause = _obstacle(case, device)
        if cause:
            key = f"{case.candidate.language.value} ({cause})"
            skipped[key] = skipped.get(key, 0) + 1
        else:
            chosen.append(case)
    return chosen, tuple(f"{count} in {key}" for key, count in skipped.items())


def _obstacle(case: Case, device: str) -> str:
    try:
        require_judgeable(case.candidate.language, device)
    except UnsupportedLanguage as error:
        return str(error)
    kind = device.partition(":")[0]
    return "" if kind in case.devices else f"its answer is stated for {' and '.join(case.devices)} only"


def _groups(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Cases that one open judge can take, screened ones before others."""
    groups: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        key = (case.task, case.profile, case.candidate.language is Language.CPP, _hangs(case))
        groups.setdefault(key, []).append(case)
    for group in groups.values():
        yield sorted(group, key=lambda case: not case.screening)


def _hangs(case: Case) -> bool:
    return case.expected == {Outcome.HUNG}


def _judge(
    group: Sequence[Case],
    settings: JudgeSettings,
    pool: WarmPool,
    folder: Path,
    repeat: int,
    tally: _Tally,
    progress: Progress,
) -> None:
    with tempfile.TemporaryDirectory(prefix="kernelgraft-corpus-") as tasks:
        task = import_kernelbench(task_file(group[0], folder), Path(tasks), device=settings.device)
        with Judge(task, _brisk(settings, group[0]), pool=pool) as judge:
            for _ in range(repeat):
                for screening in (True, False):
                    judge.settings = replace(judge.settings, screening=screening)
                    batch = [case for case in group if case.screening is screening]
                    before = time.monotonic()
                    verdicts = judge.evaluate_many(case.candidate for case in batch)
                    for case, verdict in zip(batch, verdicts, strict=True):
                        now = time.monotonic()
                        tally.add(case, verdict, now - before)
                        before = now
                        progress.advance(case.name)


def _brisk(settings: JudgeSettings, case: Case) -> JudgeSettings:
    load = settings.load_limit_s
    if case.candidate.language is Language.CPP:
        limit, load = (_NATIVE_HANG_S if _hangs(case) else _NATIVE_LIMIT_S), min(load, _NATIVE_LOAD_S)
    else:
        limit = _PYTHON_HANG_S if _hangs(case) else _PYTHON_LIMIT_S
    return replace(
        settings,
        profile=case.profile,
        timing_seconds=min(settings.timing_seconds, _TIMING_SECONDS),
        run_limit_s=min(settings.run_limit_s, limit),
        load_limit_s=load,
    )


def _report(
    cases: Sequence[Case],
    tally: _Tally,
    skipped: tuple[str, ...],
    left_behind: tuple[str, ...],
    *,
    device: str,
    repeat: int,
    seconds: float,
) -> SelfTestReport:
    honest = [case for case in cases if case.kind is Kind.HONEST]
    cheats = [case for case in cases if case.kind is Kind.CHEAT]
    verdicts = [verdict for several in tally.verdicts.values() for verdict in several]
    walls = dict.fromkeys(wall for verdict in verdicts for wall in verdict.walls)
    missing = dict.fromkeys(wall for verdict in verdicts for wall in verdict.missing_walls)
    spreads = [
        spread
        for case in honest
        if (spread := _speedup_spread(tally.verdicts.get(case.name, []))) is not None
    ]
    return SelfTestReport(
        honest=Honest(total=len(honest), passed=sum(case.name not in tally.objections for case in honest)),
        cheats=Cheats(total=len(cheats), caught=sum(case.name not in tally.objections for case in cheats)),
        evaluations_per_minute=60.0 * len(verdicts) / tally.seconds if verdicts else 0.0,
        walls=tuple(walls),
        missing_walls=tuple(missing),
        device=device,
        skipped=skipped,
        failures=tuple(tally.objections.values()),
        left_behind=left_behind,
        repetitions=repeat,
        unsteady=tuple(
            f"{name}: {', '.join(sorted({v.outcome.value for v in several}))}"
            for name, several in tally.verdicts.items()
            if len({verdict.outcome for verdict in several}) > 1
        ),
        speedup_spread=max(spreads, default=None),
        seconds=seconds,
    )


def _speedup_spread(verdicts: Sequence[Verdict]) -> float | None:
    speedups = [verdict.speedup for verdict in verdicts if verdict.speedup is not None]
    if len(speedups) < 2:
        return None
    return (max(speedups) - min(speedups)) / median(speedups)

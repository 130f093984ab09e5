"""The ``judge`` command: one kernel on one task, or the self-test, printed as a table or as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from integrator.report.terminal import Attentive, make_console, watcher
from integrator.report.verdicts import print_judged, print_self_test
from optimizer.candidate import Language
from optimizer.judge.settings import JudgeSettings


def judge_one(
    task: Path, candidate: Path, settings: JudgeSettings, language: Language | None, *, as_json: bool
) -> bool:
    """Judge, print, and say whether the candidate is correct. Raises what ``judge_file`` raises."""
    from optimizer.judge.single import judge_file

    judged = judge_file(task, candidate, settings, language)
    if as_json:
        print(judged.model_dump_json(indent=1))
    else:
        print_judged(make_console(), judged)
    return judged.verdict.correct


def run_self_test(
    settings: JudgeSettings, *, only: str, repeat: int, as_json: bool, check: Callable[[], None]
) -> bool:
    """Judge the corpus, print, and say whether every candidate got its stated answer and nothing was left behind."""
    from optimizer.judge import selftest

    progress = Attentive(watcher(make_console(stderr=True)), check)
    report = selftest.run(settings, device=settings.device, filter=only, repeat=repeat, progress=progress)
    if as_json:
        print(report.model_dump_json(indent=1))
    else:
        print_self_test(make_console(), report)
    return report.right

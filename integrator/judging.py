"""The ``judge`` command: one kernel on one task, or the self-test, printed as a table or as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from integrator.report.terminal import Attentive, make_console, watcher
from integrator.report.verdicts import print_judged, print_self_test
from optimizer.candidate import Language
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.verdict import Verdict


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
    if remark := no_profile(judged.verdict, settings):
        make_console(stderr=as_json).print(remark, markup=False, highlight=False, soft_wrap=True)
    return judged.verdict.correct


def no_profile(verdict: Verdict, settings: JudgeSettings) -> str:
    """Why a correct verdict has no profile though one was asked for; empty if it has, or none was."""
    if not settings.profiling or not verdict.correct or verdict.profile:
        return ""
    if not settings.timing:
        return "no profile: it is made of timed calls, and --no-timing leaves them out"
    if not verdict.clock:
        return f"no profile: on {verdict.device} it was not timed; add --device cuda where there is a GPU"
    return "no profile: the profiler gave none"


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

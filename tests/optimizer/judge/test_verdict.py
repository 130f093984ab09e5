"""A verdict's text may be the candidate's words: it can always be written, and never obeyed."""

import pytest

from optimizer.judge.course import Course
from optimizer.judge.isolation.walls import Wall
from optimizer.judge.verdict import Outcome, Verdict, WorkloadResult

HOSTILE = "a\ud800b \x1b[2J\x00\r\u202e \udcff"


def test_every_text_of_a_verdict_is_made_harmless() -> None:
    course = Course(
        results=(WorkloadResult(workload="default", detail=HOSTILE),),
        state_changes=(HOSTILE,),
        walls=(Wall("seccomp", False, HOSTILE),),
        profile=HOSTILE,
        log=f"{HOSTILE}\n\tindented",
    )
    verdict = course.verdict(Outcome.CORRECT, HOSTILE)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
    spelled = r"a\ud800b \x1b[2J\x00 \u202e \udcff"
    assert verdict.reason == spelled
    assert verdict.results[0].detail == spelled
    assert verdict.state_changes == (spelled,)
    assert verdict.missing_walls == (f"seccomp: {spelled}",)
    assert verdict.profile == spelled
    assert verdict.log == f"{spelled}\n\tindented"


def test_the_text_of_a_verdict_is_bounded() -> None:
    long = "x" * 100_000
    course = Course(state_changes=(long,) * 1000, profile=long, log=long)
    verdict = course.verdict(Outcome.CORRECT, long)
    assert len(verdict.reason) == 2000
    assert len(verdict.state_changes) == 64
    assert len(verdict.model_dump_json()) < 200_000


@pytest.mark.parametrize("text", ["é → 3 µs", "line one\nline two"])
def test_honest_text_stays(text: str) -> None:
    assert Course(log=text).verdict(Outcome.BUILD_FAILED, "no").log == text

"""The screen on the corpus: no honest candidate is refused, and a cheat only where that is its stated answer."""

import re

import pytest

from optimizer.judge.corpus import Case, Kind, load_corpus
from optimizer.judge.screens import screen
from optimizer.judge.verdict import Outcome


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return load_corpus()


def test_no_honest_candidate_is_refused(cases: list[Case]) -> None:
    honest = [case for case in cases if case.kind is Kind.HONEST]
    assert {case.name: refusal.reason for case in honest if (refusal := screen(case.candidate))} == {}
    assert len(honest) >= 75


def test_cheats_are_refused_only_where_that_is_their_answer(cases: list[Case]) -> None:
    refused = {
        case: refusal
        for case in cases
        if case.kind is Kind.CHEAT and case.screening and (refusal := screen(case.candidate))
    }
    for case, refusal in refused.items():
        assert Outcome.REFUSED in case.expected, f"{case.name}: {refusal.reason}"
        assert re.search(case.reason, refusal.reason), f"{case.name}: {refusal.reason}"
    assert len(refused) >= 40
    rules = {refusal.rule for refusal in refused.values()}
    assert rules >= {
        "custom kernel",
        "no patching",
        "no fallback",
        "no caching between calls",
        "no introspection",
    }

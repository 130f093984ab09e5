"""How one verdict is printed: numbers are never cut, and nothing is said twice."""

import io

import pytest
from rich.console import Console

from integrator.report.verdicts import print_judged
from optimizer.candidate import Language
from optimizer.judge.course import describe
from optimizer.judge.single import JudgedFile, JudgedWorkload
from optimizer.judge.verdict import Outcome, Quantiles, Verdict, WorkloadResult


def quantiles(median: float) -> Quantiles:
    return Quantiles(p20=median * 0.99, median=median, p80=median * 1.01)


def judged(verdict: Verdict) -> JudgedFile:
    return JudgedFile(
        task="silu_gate-1", candidate="kernel.cpp", sha256="0", language=Language.CPP, tolerance="strict", health=(),
        threads=1, kernelgraft="0", workloads=tuple(JudgedWorkload.of(result) for result in verdict.results),
        winning_workloads=verdict.winning_workloads, verdict=verdict,
    )  # fmt: skip


def printed(verdict: Verdict, width: int) -> str:
    console = Console(file=io.StringIO(), highlight=False, markup=False, width=width)
    print_judged(console, judged(verdict))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


RESULT = WorkloadResult(
    workload="prefill-b4-s32",
    error=1.0,
    reference=quantiles(12345.6),
    candidate=quantiles(234.5),
    graph_reference=quantiles(4711.0),
    graph_candidate=quantiles(2.345),
    detail="a remark that is long enough to be wrapped over some lines",
)


@pytest.mark.parametrize("width", [200, 100, 80, 60, 30])
@pytest.mark.parametrize("graph", [True, False])
def test_numbers_are_whole_at_any_width(width: int, graph: bool) -> None:
    update = {} if graph else {"graph_reference": None, "graph_candidate": None, "detail": ""}
    result = RESULT.model_copy(update=update)
    text = printed(Verdict(outcome=Outcome.CORRECT, reason="fine", results=(result,)), width)
    assert "…" not in text
    shown = ["4711 us", "2.345 us", "2008.96x", "52.65x"] if graph else ["1.235e+04 us", "234.5 us", "52.65x"]
    for number in ("prefill-b4-s32", *shown, "2.0%", "1.00"):
        assert number in text


def test_a_table_of_the_cpu_fits_80_columns() -> None:
    result = RESULT.model_copy(update={"graph_reference": None, "graph_candidate": None, "detail": ""})
    text = printed(Verdict(outcome=Outcome.CORRECT, reason="fine", results=(result,)), 80)
    assert "error /" in text
    assert "  eager 1" not in text


def test_the_outcome_is_said_once() -> None:
    text = printed(Verdict(outcome=Outcome.REFUSED, reason="refused by rule 'clock': line 3: no"), 80)
    assert "refused: by rule 'clock': line 3: no" in text


@pytest.mark.parametrize(("candidate", "word"), [(200.0, "slower"), (10.0, "no clear win"), (1.0, "us)")])
def test_a_slower_kernel_is_called_slower(candidate: float, word: str) -> None:
    result = WorkloadResult(workload="w", reference=quantiles(10.0), candidate=quantiles(candidate))
    assert word in describe(10.0 / candidate, (result,))

"""What the judge says of a candidate: one frozen record, readable by a policy, a store and a person.

Much of its text are words of the candidate's: whatever they are, here they are bounded and harmless.
"""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from extractor.plain_text import one_line, some_lines

WIN_MARGIN = 1.03  # a win must clear the other side's quantile by this much
_LINE_CHARACTERS, _TEXT_CHARACTERS, _LINES = 2000, 16 << 10, 64


def _line(value: Any) -> Any:
    return one_line(value, _LINE_CHARACTERS) if isinstance(value, str) else value


def _text(value: Any) -> Any:
    return some_lines(value, _TEXT_CHARACTERS) if isinstance(value, str) else value


def _few(values: Any) -> Any:
    return values[:_LINES] if isinstance(values, list | tuple) else values


Line = Annotated[str, BeforeValidator(_line)]
Lines = Annotated[tuple[Line, ...], BeforeValidator(_few)]
Text = Annotated[str, BeforeValidator(_text)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class Outcome(StrEnum):
    """Where judging ended; all but ``CORRECT`` are failures, and ``SANDBOX_FAILED`` is the judge's own."""

    REFUSED = "refused"  # the screen: a rule was broken; no code was run
    BUILD_FAILED = "build_failed"  # the compiler said no, or ran out of time or memory
    CRASHED = "crashed"  # signal, early exit
    HUNG = "hung"  # killed at the wall-clock limit
    UNSUPPORTED = "unsupported"  # the candidate itself declined a workload it must serve
    WRONG = "wrong"  # numbers, shapes, unwritten or out-of-bounds output, mutated input
    IMPLAUSIBLE = "implausible"  # faster than the machine's roofline allows, or clocks disagree
    CORRECT = "correct"  # all checks passed; see the speedup for what it is worth
    SANDBOX_FAILED = "sandbox_failed"  # the judge could not do its work; never counted against a candidate


class Quantiles(_Record):
    """Microseconds of one call, on the clock that :attr:`Verdict.clock` names."""

    p20: float
    median: float
    p80: float
    samples: tuple[float, ...] = ()

    @property
    def spread(self) -> float:
        """``(p80 - p20) / median``; 0 for a median of 0."""
        return (self.p80 - self.p20) / self.median if self.median else 0.0


class WorkloadResult(_Record):
    """One workload's check and, when all checks passed, its timing."""

    workload: Line
    error: float | None = (
        None  # candidate's error against fp64 over eager's own error there (strict); 1.0 = equal
    )
    detail: Line = ""
    reference: Quantiles | None = None
    candidate: Quantiles | None = None
    # GPU only: the same calls replayed from a CUDA graph, timed by wall clock from outside; None if not capturable.
    graph_reference: Quantiles | None = None
    graph_candidate: Quantiles | None = None

    @property
    def decisive(self) -> tuple[Quantiles, Quantiles] | None:
        """(reference, candidate) of the regime that decides: graph replay where both were replayed, else eager."""
        if self.graph_reference is not None and self.graph_candidate is not None:
            return self.graph_reference, self.graph_candidate
        if self.reference is not None and self.candidate is not None:
            return self.reference, self.candidate
        return None

    @property
    def speedup(self) -> float | None:
        """Ratio of the decisive medians, reference over candidate."""
        if self.decisive is None:
            return None
        reference, candidate = self.decisive
        return reference.median / candidate.median

    @property
    def eager_speedup(self) -> float | None:
        """Ratio of medians of calls made one by one; on a CPU that is :attr:`speedup`."""
        if self.reference is None or self.candidate is None:
            return None
        return self.reference.median / self.candidate.median

    @property
    def graph_speedup(self) -> float | None:
        """Ratio of medians under graph replay; None if either side was not replayed."""
        if self.graph_reference is None or self.graph_candidate is None:
            return None
        return self.graph_reference.median / self.graph_candidate.median

    @property
    def noise(self) -> float | None:
        """The wider of both decisive spreads, ``(p80 - p20) / median``: a ratio closer to 1 than this says nothing."""
        return None if self.decisive is None else max(side.spread for side in self.decisive)

    @property
    def clear_win(self) -> bool:
        """The graft rule: ``p80(candidate) < p20(reference) / 1.03``, in the decisive regime.

        What cannot be captured where eager can wins nothing: it would take the model out of its CUDA graph.
        """
        if self.decisive is None or (self.graph_reference is not None and self.graph_candidate is None):
            return False
        reference, candidate = self.decisive
        return candidate.p80 < reference.p20 / WIN_MARGIN


class Verdict(_Record):
    """The judge's answer. ``reason`` is one sentence a policy can act on."""

    outcome: Outcome
    reason: Line
    results: tuple[WorkloadResult, ...] = ()
    speedup: float | None = None  # calls-weighted over the timed workloads; None unless CORRECT and timed
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    walls: Lines = ()  # isolation layers that were up
    missing_walls: Lines = ()  # layers this machine lacks, each as "name: why"
    device: str = "cpu"
    clock: Line = ""  # what the times are; empty if nothing was timed
    launches: int | None = None  # custom kernels one forward launched (Python candidates)
    state_changes: Lines = ()  # numeric state found changed after the run
    roofline: float | None = (
        None  # share of the roofline bound reached on the slowest-weighted workload, 0..1; None if not known
    )
    profile: Text = ""
    machine: str = ""  # key of the machine it was measured on
    log: Text = Field(default="", repr=False)  # compiler or worker output, shortened

    @property
    def correct(self) -> bool:
        """True if every check passed."""
        return self.outcome is Outcome.CORRECT

    @property
    def winning_workloads(self) -> tuple[str, ...]:
        """Workloads on which the candidate clears the 1.03 rule."""
        return tuple(r.workload for r in self.results if r.clear_win)

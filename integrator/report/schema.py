"""``report.json``: the schema-versioned summary of a run, as pydantic models.

Vocabulary. The *headline* compares the patched model with the best stock rung measured, one entry a batch. A
*rung* is a way to run the unpatched model (eager attention, sdpa, Inductor ...). The *curve* is the ledger:
tokens/s after each graft, in the order they were integrated. A *family row* sets the isolated speedup of a
family's kernels beside what they were measured to contribute to the whole model. Throughputs are tokens/s,
shares and fractions lie in 0..1, speedups are ratios (1.0 = equal), times are seconds, memory is bytes.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from extractor.families import Family

SCHEMA_VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Headline(_Record):
    """Patched model against the best stock rung measured, at one batch."""

    model: str
    device: str
    dtype: str
    batch: int
    rung: str  # the stock rung it is compared with
    grafts: int = 0  # kernels in the patched model
    stronger_left_out: tuple[str, ...] = ()  # rungs that are often stronger and were not measured
    stock_tokens_per_s: float
    patched_tokens_per_s: float
    speedup: float
    ci_low: float
    ci_high: float

    def sentence(self) -> str:
        """The headline in words: rates, number of grafts, ratio, the rung it is against, and its interval."""
        left_out = ""
        if self.stronger_left_out:
            left_out = f"; not measured: {', '.join(self.stronger_left_out)}"
        return (
            f"batch {self.batch}: {self.stock_tokens_per_s:.1f} -> {self.patched_tokens_per_s:.1f} tokens/s "
            f"with {self.grafts} graft{'' if self.grafts == 1 else 's'}, "
            f"{self.speedup:.2f}x the best stock rung measured ({self.rung}; "
            f"95 % CI {self.ci_low:.2f}-{self.ci_high:.2f}{left_out})"
        )


class Rung(_Record):
    """One way to run the stock model, measured at one batch."""

    name: str
    batch: int
    tokens_per_s: float
    ci_low: float
    ci_high: float
    best: bool = False  # the fastest stock rung at this batch
    base: bool = False  # the rung the grafts were integrated on
    note: str = ""


class OmittedRung(_Record):
    """A rung that was not measured, and why; a headline without it must say so."""

    name: str
    reason: str


class CurvePoint(_Record):
    """One measured configuration of the ledger: the grafts kept so far plus this one.

    Points without a family are ``stock`` (position 0), ``graph`` (captured, no graft) and ``final`` (all kept
    grafts, measured once more together with the stock rungs).
    """

    batch: int
    position: int
    label: str
    family: Family | None = None
    task_id: str | None = None
    kept: bool = True
    tokens_per_s: float
    ci_low: float
    ci_high: float
    projected_tokens_per_s: float | None = None  # Amdahl, from shares and isolated speedups
    reason: str = ""  # of a rollback


class FamilyRow(_Record):
    """A family at one batch: where the time went, what the kernel gains alone, what the model gained."""

    family: Family
    batch: int
    share: float | None = None  # share of the stock decode step
    isolated_speedup: float | None = None
    projected_gain: float | None = None  # end-to-end ratio by Amdahl's law, 1.0 = none
    measured_gain: float | None = None  # end-to-end ratio measured when it landed, 1.0 = none
    kept: bool = False


class WorkloadSpeed(_Record):
    """Isolated speedup on one shape set of a task."""

    workload: str
    speedup: float


class Graft(_Record):
    """An accepted kernel, with its source."""

    task_id: str
    family: Family
    language: str
    candidate_sha: str
    speedup: float  # isolated, calls-weighted over the timed workloads
    workloads: tuple[WorkloadSpeed, ...] = ()
    sites: int = 0
    policy: str = ""
    trajectory: int | None = None
    turn: int | None = None
    notes: dict[str, str] = Field(default_factory=dict)
    source: str = ""


class Rejected(_Record):
    """A kernel or task that did not make it into the model. ``reason`` is a word of the fixed vocabulary."""

    task_id: str
    family: Family
    reason: str
    detail: str = ""
    batch: int | None = None
    isolated_speedup: float | None = None


class TaskScore(_Record):
    """What the search found on one task."""

    task_id: str
    family: Family
    best_speedup: float | None = None  # None: no correct candidate
    judged: int = 0
    reason: str = ""  # why there is no graft


class StageTiming(_Record):
    """Wall time of a stage, and the peak resident memory of the process and all it started."""

    stage: str
    seconds: float
    peak_bytes: int = 0


class Workbench(_Record):
    """The settings a run was made with."""

    model: str
    device: str = ""
    dtype: str = ""
    attention: str = ""
    batches: tuple[int, ...] = ()
    prompt: int = 0
    tokens: int = 0
    threads: int = 1
    policy: str = ""
    budget: str = ""


class Report(_Record):
    """The whole of ``report.json``. ``missing`` says in sentences what an unfinished run does not have yet."""

    schema_version: int = SCHEMA_VERSION
    headline: tuple[Headline, ...] = ()
    complete: bool = False
    missing: tuple[str, ...] = ()
    run: str = ""
    created: str = ""  # ISO 8601, UTC
    settings: Workbench
    rungs: tuple[Rung, ...] = ()
    rungs_left_out: tuple[OmittedRung, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    families: tuple[FamilyRow, ...] = ()
    grafts: tuple[Graft, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    tasks: tuple[TaskScore, ...] = ()
    scores: dict[str, float] = Field(default_factory=dict)
    parity: dict[str, Any] = Field(default_factory=dict)
    machine: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    stages: tuple[StageTiming, ...] = ()
    peak_memory_bytes: int | None = None  # the process and all it started, together

    @property
    def batches(self) -> tuple[int, ...]:
        """Batches that have a curve, ascending."""
        return tuple(sorted({point.batch for point in self.curve}))

    def points(self, batch: int) -> tuple[CurvePoint, ...]:
        """The ledger of one batch, by position."""
        return tuple(sorted((p for p in self.curve if p.batch == batch), key=lambda point: point.position))

    def best_rung(self, batch: int) -> Rung | None:
        """The fastest stock rung measured at a batch."""
        rungs = [rung for rung in self.rungs if rung.batch == batch]
        return max(rungs, key=lambda rung: rung.tokens_per_s, default=None)

    def speedup(self, batch: int) -> float | None:
        """The headline's speedup at a batch."""
        return next((entry.speedup for entry in self.headline if entry.batch == batch), None)


_TAGS = {
    Family.LM_HEAD: "LM",
    Family.ATTENTION_DECODE: "AD",
    Family.GDN_STEP: "GS",
    Family.RMSNORM: "RN",
    Family.LINEAR: "LN",
    Family.IMPORTED: "IM",
    Family.ELEMENTWISE: "EW",
    Family.SHARED_GATE_UP: "SG",
    Family.ROUTED_GATE_UP: "RG",
    Family.ROUTED_DOWN: "RD",
    Family.ROUTER: "RT",
    Family.MLA_PROJECTION: "ML",
}


def tag(family: Family) -> str:
    """One or two letters that fit under a tick: the paper's letter, else an abbreviation of the name."""
    return _TAGS.get(family, family.letter)

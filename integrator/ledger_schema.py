"""``ledger.json``: what `integrate` measured, as pydantic models.

Vocabulary. An *arm* is anything that decodes and is timed: a stock rung or a configuration of the patched graph.
A *rung* is one way to run the unpatched model. A *configuration* is the captured graph with a set of grafts in
it; the one with none is called ``graph``. A *sample* is seconds a decode step, averaged over one short
chunk of steps; arms take turns, so samples of the same round belong together and ratios are formed a round.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from extractor.families import Family

LEDGER_SCHEMA_VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rung(StrEnum):
    """A way to run the stock model. The value is what ``--rungs`` takes."""

    SDPA = "sdpa"  # eager mode, attn_implementation="sdpa"
    EAGER = "eager"  # eager mode, attn_implementation="eager"
    INDUCTOR = "inductor"  # torch.compile, default mode
    INDUCTOR_MAX = "inductor-max"  # torch.compile, freezing and max-autotune

    @property
    def label(self) -> str:
        """The words tables use."""
        return _RUNG_LABELS[self]

    @property
    def compiled(self) -> bool:
        """True if it needs a compiler and a process of its own."""
        return self in (Rung.INDUCTOR, Rung.INDUCTOR_MAX)


_RUNG_LABELS = {
    Rung.SDPA: "stock eager, sdpa attention",
    Rung.EAGER: "stock eager, eager attention",
    Rung.INDUCTOR: "stock Inductor, default",
    Rung.INDUCTOR_MAX: "stock Inductor, freezing + max-autotune",
}


class RungStatus(StrEnum):
    """What became of a rung."""

    MEASURED = "measured"
    FAILED = "failed"  # see ``reason``
    LEFT_OUT = "left_out"  # not asked for


class RollbackReason(StrEnum):
    """Why a graft is not in the final configuration: a closed vocabulary."""

    NO_SEAM = "no_seam"  # no region of the captured step has its op_key at a batch it was accepted for
    NO_ENGAGEMENT = "no_engagement"  # it was placed, and its launches are not sites x steps
    CAPTURE_UNSAFE = "capture_unsafe"  # it could not be built, bound or called inside the captured step
    PARITY = "parity"  # logits left the neighbourhood of the fp32 truth that stock keeps
    UNSTABLE = "unstable"  # two identical runs gave different logits, or logits are not finite
    SLOWER = "slower"  # the step got slower with it, beyond measuring error
    IMPLAUSIBLE = "implausible"  # the step lost more time than the operator ever took


class Estimate(_Record):
    """A measured value with its 95 % bootstrap interval."""

    value: float
    ci_low: float
    ci_high: float


class Parity(_Record):
    """Teacher-forced logits against an fp32 run of the same weights, over ``positions`` x batch rows."""

    rms_error: float  # root mean square of (logits - truth), in logit units
    max_error: float
    kl: float  # mean KL(truth || arm) in nats a position
    top1_agreement: float  # share of positions whose argmax equals the truth's, 0..1
    positions: int
    trimmed: int = 0  # worst positions left out of RMS error and KL, where steps select experts


class RungResult(_Record):
    """One way of running the stock model, measured or not."""

    rung: Rung
    label: str
    status: RungStatus
    reason: str = ""
    samples: tuple[float, ...] = ()  # seconds a step, one a round of the headline run
    tokens_per_s: Estimate | None = None
    compile_seconds: float | None = None
    peak_rss_bytes: int | None = None  # of its own process, where it has one


class Configuration(_Record):
    """The captured graph with a set of grafts, measured in the interleaved run."""

    name: str  # "stock", "graph", "+A ffn_down", ..., "final"
    grafts: tuple[str, ...] = ()  # graft ids in it, in letter order
    added: str | None = None  # graft id that is new against the configuration before
    samples: tuple[float, ...] = ()  # seconds a step, one a round
    tokens_per_s: Estimate
    speedup: Estimate  # over the stock configuration of the same run, paired a round
    step_speedup: Estimate | None = None  # over the configuration before, paired a round
    projected_speedup: float | None = None  # Amdahl, from census shares and isolated speedups
    parity: Parity | None = None


class GraftOutcome(_Record):
    """What became of one accepted kernel in this batch's decode step."""

    graft: str  # graft id, unique in the ledger
    task_id: str
    family: Family
    letter: str
    candidate_sha: str
    kept: bool
    reason: RollbackReason | None = None
    detail: str = ""  # one sentence
    sites: int = 0  # calls a decode step at which it was placed
    steps: int = 0  # steps over which launches were counted
    expected_launches: int = 0  # sites x steps
    launches: int = 0
    isolated_speedup: float | None = None  # the judge's, at this batch
    share: float | None = None  # census share of its operator in the stock decode step, 0..1
    projected_step_speedup: float | None = None  # Amdahl for this graft alone
    measured_step_speedup: Estimate | None = None  # paired, when it was added to the ladder
    packed: bool = False  # its weights were moved into one buffer in huge pages


class Unserved(_Record):
    """Regions of the captured step that stay stock, and why."""

    family: Family
    op_key: str
    sites: int
    why: str


class Headline(_Record):
    """The one line a reader remembers: final configuration against the best stock rung measured with it."""

    model: str
    device: str
    dtype: str
    batch: int
    rung: Rung
    rung_label: str
    stock_tokens_per_s: float
    patched_tokens_per_s: float
    speedup: float
    ci_low: float
    ci_high: float
    stronger_left_out: tuple[Rung, ...] = ()  # rungs that are often stronger and were not measured


class BatchLedger(_Record):
    """One batch size's ledger."""

    batch: int
    prompt: int
    tokens: int
    cache_len: int
    configurations: tuple[Configuration, ...]  # the ladder: stock, graph, +1, +1,2, ...
    final: Configuration  # after rollback, from the headline run
    rungs: tuple[RungResult, ...]  # from the headline run
    grafts: tuple[GraftOutcome, ...]  # letter order
    unserved: tuple[Unserved, ...] = ()
    stock_parity: Parity  # the stock model's own distance from the fp32 truth
    headline: Headline
    steps_per_sample: int = 0  # decode steps in one sample
    capture_seconds: float  # detecting and binding, without Dynamo's own time


class LedgerSettings(_Record):
    """How it was measured."""

    rounds: int
    steps_per_sample: int  # at least; what a batch really took stands in its ledger
    threads: int
    clock: str  # "thread_time": CPU seconds of the one thread; "perf_counter": wall clock of several
    keep_all: bool
    parity_multiple: float  # a patched model may be this many times stock's distance from the truth
    rungs_asked: tuple[Rung, ...]


class Ledger(_Record):
    """Everything `integrate` found out about one run."""

    schema_version: int = LEDGER_SCHEMA_VERSION
    model: str
    device: str
    dtype: str
    attention: str  # attn_implementation of the captured graph
    created: str  # ISO 8601, UTC
    settings: LedgerSettings
    batches: tuple[BatchLedger, ...]
    peak_rss_bytes: int  # of the measuring process
    versions: dict[str, str]
    notes: tuple[str, ...] = ()

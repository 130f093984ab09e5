"""Synthetic reports and ledgers: invented numbers, shaped like a real run, seeded by nothing random."""

import pytest

from extractor.families import Family
from integrator.ledger_schema import (
    BatchLedger,
    Configuration,
    Estimate,
    GraftOutcome,
    Headline,
    Ledger,
    LedgerSettings,
    Parity,
    RollbackReason,
    Rung,
    RungResult,
    RungStatus,
    Unserved,
)
from integrator.report.build import family_rows, from_ledger
from integrator.report.schema import Graft, Report, StageTiming, TaskScore, Workbench, WorkloadSpeed

TEXT = "preset:qwen3-synthetic"
PARITY = Parity(rms_error=0.01, max_error=0.05, kl=1e-5, top1_agreement=0.99, positions=64)
HOSTILE = (
    "</script><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\">\x1b[2J\u202e$x^2$"
)
GRAFTS = (  # family, share, isolated, measured step ratio, reason it was rolled back
    (Family.FFN_DOWN, 0.10, 2.3, 1.05, None),
    (Family.FFN_GATE_UP, 0.23, 2.8, 1.17, None),
    (Family.ATTENTION_OUTPUT, 0.075, 2.5, 1.04, None),
    (Family.ATTENTION_QKV, 0.17, 2.6, 1.11, None),
    (Family.RESIDUAL_RMSNORM, 0.02, 5.2, 0.97, RollbackReason.SLOWER),
    (Family.QK_NORM_ROPE, 0.032, 13.9, 1.03, None),
    (Family.LM_HEAD, 0.187, 2.2, 1.12, None),
    (Family.ATTENTION_DECODE, 0.128, 3.1, 1.13, None),
)


@pytest.fixture
def hostile() -> str:
    """Text that tries to escape from HTML, from a terminal, and from matplotlib's formulas."""
    return HOSTILE


@pytest.fixture
def make_ledger():
    """Builds a ledger: ``make_ledger(model=..., reason=...)``."""
    return ledger


@pytest.fixture
def make_report():
    """Builds a whole report: ``make_report(text=...)`` puts the text wherever a report shows somebody's words."""
    return report


def estimate(value: float, width: float = 0.03) -> Estimate:
    return Estimate(value=value, ci_low=value * (1 - width), ci_high=value * (1 + width))


def batch_ledger(batch: int, base: float, *, model: str, reason: str) -> BatchLedger:
    """A ladder in which every graft has the step ratio of GRAFTS; one is rolled back."""
    rate, projected, kept = base, 1.0, ()
    ladder = [
        Configuration(name="stock", tokens_per_s=estimate(base), speedup=estimate(1.0)),
        Configuration(name="graph", tokens_per_s=estimate(base * 1.01), speedup=estimate(1.01)),
    ]
    outcomes = []
    for family, share, isolated, step, why in GRAFTS:
        graft = f"{family.value}@b{batch}"
        here = rate * step
        projected *= 1 / (1 - share * (1 - 1 / isolated))
        ladder.append(
            Configuration(
                name=f"+{family.letter} {family.value}",
                grafts=(*kept, graft),
                added=graft,
                tokens_per_s=estimate(here),
                speedup=estimate(here / base),
                step_speedup=estimate(step),
                projected_speedup=projected,
                parity=PARITY,
            )
        )
        outcomes.append(
            GraftOutcome(
                graft=graft,
                task_id=f"{family.value}-0123456789",
                family=family,
                letter=family.letter,
                candidate_sha="ab" * 32,
                kept=why is None,
                reason=why,
                detail="" if why is None else reason,
                sites=28,
                steps=64,
                expected_launches=28 * 64,
                launches=28 * 64,
                isolated_speedup=isolated,
                share=share,
                projected_step_speedup=1 / (1 - share * (1 - 1 / isolated)),
                measured_step_speedup=estimate(step),
            )
        )
        if why is None:
            rate, kept = here, (*kept, graft)
    stock = base * 1.08
    return BatchLedger(
        batch=batch,
        prompt=32,
        tokens=32,
        cache_len=64,
        configurations=tuple(ladder),
        final=Configuration(
            name="final",
            grafts=kept,
            tokens_per_s=estimate(rate * 1.01),
            speedup=estimate(rate * 1.01 / base),
        ),
        rungs=(
            RungResult(
                rung=Rung.SDPA,
                label=Rung.SDPA.label,
                status=RungStatus.MEASURED,
                tokens_per_s=estimate(base),
            ),
            RungResult(
                rung=Rung.EAGER,
                label=Rung.EAGER.label,
                status=RungStatus.MEASURED,
                tokens_per_s=estimate(stock),
            ),
            RungResult(
                rung=Rung.INDUCTOR_MAX,
                label=Rung.INDUCTOR_MAX.label,
                status=RungStatus.LEFT_OUT,
                reason="not asked for",
            ),
        ),
        grafts=tuple(outcomes),
        unserved=(
            Unserved(family=Family.ELEMENTWISE, op_key="0" * 40, sites=28, why="no kernel was accepted"),
        ),
        stock_parity=PARITY,
        headline=Headline(
            model=model,
            device="cpu",
            dtype="bfloat16",
            batch=batch,
            rung=Rung.EAGER,
            rung_label=Rung.EAGER.label,
            stock_tokens_per_s=stock,
            patched_tokens_per_s=rate * 1.01,
            speedup=rate * 1.01 / stock,
            ci_low=rate * 0.98 / stock,
            ci_high=rate * 1.04 / stock,
            stronger_left_out=(Rung.INDUCTOR_MAX,),
        ),
        capture_seconds=3.2,
    )


def ledger(*, model: str = "preset:qwen3-synthetic", reason: str = "the step took 1.03x as long") -> Ledger:
    """A ledger of two batches."""
    return Ledger(
        model=model,
        device="cpu",
        dtype="bfloat16",
        attention="eager",
        created="2026-12-01T10:00:00+00:00",
        settings=LedgerSettings(
            rounds=12,
            steps_per_sample=4,
            threads=1,
            clock="thread_time",
            keep_all=False,
            parity_multiple=2.0,
            rungs_asked=(Rung.SDPA, Rung.EAGER),
        ),
        batches=(
            batch_ledger(1, 6.2, model=model, reason=reason),
            batch_ledger(4, 17.3, model=model, reason=reason),
        ),
        peak_rss_bytes=3 << 30,
        versions={"torch": "2.13.0", "transformers": "5.17.0"},
    )


def report(*, text: str = "") -> Report:
    """A finished report; ``text`` replaces names, notes, reasons and sources."""
    made = ledger(model=text or TEXT, reason=text or "the step took 1.03x as long")
    parts = from_ledger(made)
    shares = {family: share for family, share, *_ in GRAFTS}
    source = text or '#include "kg.h"\nextern "C" int kg_forward(const kg_tensor* in) { return KG_OK; }\n'
    grafts = tuple(
        Graft(
            task_id=text or f"{family.value}-0123456789",
            family=family,
            language="cpp",
            candidate_sha="ab" * 32,
            speedup=isolated,
            workloads=(WorkloadSpeed(workload=text or "decode-b1", speedup=isolated),),
            sites=28,
            policy=text or "catalog",
            trajectory=2,
            turn=1,
            notes={text or "rows": text or "4"},
            source=source,
        )
        for family, _, isolated, _, why in GRAFTS
        if why is None
    )
    return Report(
        headline=parts.headline,
        complete=True,
        missing=(text,) if text else (),
        run="demo",
        created=text or "2026-12-01T10:00:00+00:00",
        settings=Workbench(
            model=text or TEXT, device="cpu", dtype="bfloat16", batches=(1, 4), prompt=32, tokens=32
        ),
        rungs=tuple(rung.model_copy(update={"note": text}) for rung in parts.rungs),
        rungs_left_out=parts.left_out,
        curve=parts.curve,
        families=tuple(row for batch in made.batches for row in family_rows(batch, shares)),
        grafts=grafts,
        rejected=parts.rejected,
        tasks=tuple(
            TaskScore(task_id=g.task_id, family=g.family, best_speedup=g.speedup, judged=16, reason=text)
            for g in grafts
        ),
        scores={"RAW": 2.31, "METR": 2.31},
        machine={"cpu": text or "SYNTHETIC CPU"},
        versions={"kernelgraft": text or "0.1.0"},
        stages=(StageTiming(stage=text or "extract", seconds=33.2),),
        peak_memory_bytes=4 << 30,
    )

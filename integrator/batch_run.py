"""One batch's ledger, from a loaded model and its accepted kernels: screen, ladder, rollback, headline.

1. *Screen*, untimed: grafts join one at a time in letter order. Each must have sites, be launched sites x steps
   times, give the same finite logits twice, and leave the logits as near to the truth as stock's. One that fails is
   rolled back at once, so that the next is judged without it.
2. *Ladder*: stock, the bare captured graph, and every prefix of the surviving grafts, interleaved in one run.
3. *Rollback*: a graft whose own step of the ladder is slower, or implausibly fast, is taken out.
4. *Headline*: the final configuration against every stock rung, interleaved in a second run. The best rung is chosen
   in the very run that it is compared in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from extractor.errors import KernelgraftError
from extractor.progress import Progress, stage
from integrator import ledger
from integrator.engine import DecodeEngine, Forward
from integrator.graph_patch import Capture, GraphPatch
from integrator.ledger import FINAL, GRAPH, STOCK, GraftFacts, Step
from integrator.ledger_schema import (
    BatchLedger,
    Configuration,
    GraftOutcome,
    Parity,
    RollbackReason,
    Rung,
)
from integrator.measure import interleave
from integrator.parity import ROUTED_TRIM, compare, truth_logits, violation
from integrator.rungs import (
    COMPILED_ATTENTION,
    Arm,
    LocalArm,
    RungFailed,
    WorkerArm,
    WorkerSpec,
    use_attention,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK_SECONDS = 0.05  # a sample should last at least this long on the CPU clock
CHUNK_STEPS = 8  # and hold at least this many steps
PARITY_STEPS = 16  # forced positions a sequence over which logits are compared
STABILITY_STEPS = 4  # steps repeated to see whether a graft gives the same logits twice


@dataclass(frozen=True)
class BatchSettings:
    """What to measure and how, for one batch."""

    model_name: str
    device: str
    dtype: str
    attention: str  # attn_implementation of the captured graph
    batch: int
    prompt: int
    tokens: int
    seed: int
    rounds: int
    keep_all: bool
    rungs: tuple[Rung, ...]
    threads: int = 1
    revision: str | None = None

    @property
    def base_rung(self) -> Rung:
        """The stock rung with the captured graph's attention: the ladder's stock."""
        return Rung(self.attention)


@dataclass
class BatchRun:
    """State of one batch's integration."""

    model: PreTrainedModel
    patch: GraphPatch
    facts: tuple[GraftFacts, ...]  # letter order
    settings: BatchSettings
    progress: Progress
    engine: DecodeEngine = field(init=False)
    truth: torch.Tensor = field(init=False)
    parity_steps: int = field(init=False)
    forward: Forward = field(init=False)
    parities: dict[frozenset[str], Parity] = field(default_factory=dict)
    rejected: dict[str, tuple[RollbackReason, str]] = field(default_factory=dict)
    launches: dict[str, tuple[int, int]] = field(default_factory=dict)  # graft -> (steps, launches)

    def measure(self) -> BatchLedger:
        """Everything. Raises UndecodableCache if the model cannot be decoded from a captured graph."""
        settings = self.settings
        use_attention(self.model, settings.attention)
        self.engine = DecodeEngine.prepare(
            self.model,
            batch=settings.batch,
            prompt=settings.prompt,
            tokens=settings.tokens,
            seed=settings.seed,
        )
        self.parity_steps = min(PARITY_STEPS, settings.tokens)
        self.truth = truth_logits(self.model, self.engine)[:, : self.parity_steps].clone()
        self.forward = self.patch.compile(self.model.forward)
        with workers(settings, self.progress) as (arms, failures):
            self.patch.set_active(())
            self.engine.decode(self.forward, 1)  # captures
            stock_parity = self.parity(self.model)
            self.screen(stock_parity)
            for arm in list(arms):
                try:
                    arm.wait_ready()
                except RungFailed as error:
                    failures[arm.name] = str(error.details["reason"])
                    arms.remove(arm)
                    self.progress.message(str(error))
            steps = self.chunk_steps()
            rows = self.climb(stock_parity, steps)
            return self.conclude(rows, arms, failures, steps, stock_parity)

    @property
    def capture(self) -> Capture:
        """The decode step's capture."""
        return self.patch.captures[-1]

    def parity(self, forward: Forward) -> Parity:
        """Teacher-forced distance of one arm from the truth."""
        return self.distance(self.engine.logits(forward, self.parity_steps))

    def distance(self, logits: torch.Tensor) -> Parity:
        """Distance of logits from the truth; a few positions are forgiven if the step selects experts."""
        return compare(logits, self.truth, trim=ROUTED_TRIM if self.capture.selects else 0.0)

    def screen(self, stock: Parity) -> None:
        """Step 1: fill ``rejected``, ``parities`` and the first engagement counts."""
        with stage(self.progress, "parity", len(self.facts) + 1) as shown:
            self.patch.set_active(())
            self.parities[frozenset()] = self.parity(self.forward)
            shown.advance(GRAPH)
            kept: list[str] = []
            scale = float(self.truth.square().mean().sqrt())
            for graft in self.facts:
                found = self.screen_one(graft, kept, stock, scale)
                if found is None:
                    kept.append(graft.id)
                else:
                    self.rejected[graft.id] = found
                    shown.message(f"{graft.label} is rolled back ({found[0].value}): {found[1]}")
                shown.advance(graft.label)
            self.patch.set_active(())

    def screen_one(
        self, graft: GraftFacts, kept: Sequence[str], stock: Parity, scale: float
    ) -> tuple[RollbackReason, str] | None:
        """Try one graft on top of ``kept``; the reason and sentence of its rollback, or None."""
        capture, steps = self.capture, self.parity_steps
        if graft.id in capture.problems:
            return RollbackReason.CAPTURE_UNSAFE, capture.problems[graft.id]
        sites = len(capture.sites_of(graft.id))
        if sites == 0:
            return RollbackReason.NO_SEAM, "no region of the captured decode step has its operator key"
        active = frozenset([*kept, graft.id])
        before = capture.launches(graft.id)
        try:
            self.patch.set_active(active)
            logits = self.engine.logits(self.forward, steps)
            launched = capture.launches(graft.id) - before
            again = self.engine.logits(self.forward, STABILITY_STEPS)
        except KernelgraftError as error:
            return RollbackReason.CAPTURE_UNSAFE, str(error)
        self.launches[graft.id] = (steps, launched)
        if launched != sites * steps:
            sentence = f"launched {launched} times in {steps} steps over {sites} sites, not {sites * steps}"
            return RollbackReason.NO_ENGAGEMENT, sentence
        if not bool(torch.isfinite(logits).all()):
            return RollbackReason.UNSTABLE, "logits are not finite with it"
        if not torch.equal(logits[:, :STABILITY_STEPS], again):
            return RollbackReason.UNSTABLE, "two identical runs gave different logits with it"
        self.parities[active] = self.distance(logits)
        sentence_or_none = violation(self.parities[active], stock, scale=scale)
        return None if sentence_or_none is None else (RollbackReason.PARITY, sentence_or_none)

    def chunk_steps(self) -> int:
        """Steps a sample, so that it lasts long enough for the clock; at most the tokens there are."""
        probe = min(CHUNK_STEPS, self.engine.tokens)
        seconds = max(self.engine.time(self.forward, probe), 1e-7)
        return min(self.engine.tokens, max(CHUNK_STEPS, int(CHUNK_SECONDS / seconds) + 1))

    def climb(self, stock: Parity, steps: int) -> tuple[Configuration, ...]:
        """Steps 2 and 3: measure the ladder, add the rollbacks it justifies to ``rejected``."""
        alive = [graft for graft in self.facts if graft.id not in self.rejected]
        rungs = ledger.ladder(alive)
        arms = [self.stock_arm(STOCK, self.settings.base_rung), *(self.patched_arm(step) for step in rungs)]
        before = {graft.id: self.capture.launches(graft.id) for graft in alive}
        samples, _ = interleave(
            arms, rounds=self.settings.rounds, steps=steps, title="ladder", progress=self.progress
        )
        for graft in alive:
            ran = (self.settings.rounds + 1) * steps * sum(graft.id in step.grafts for step in rungs)
            counted = self.capture.launches(graft.id) - before[graft.id]
            self.launches[graft.id] = (ran, counted)
            expected = ran * len(self.capture.sites_of(graft.id))
            if counted != expected:
                sentence = f"launched {counted} times in the timed region, not {expected}"
                self.rejected[graft.id] = (RollbackReason.NO_ENGAGEMENT, sentence)
        previous = samples[GRAPH]
        for step, graft in zip(rungs[1:], alive, strict=True):
            found = ledger.judge_step(
                previous, samples[step.name], samples[STOCK], graft.share, keep_all=self.settings.keep_all
            )
            if found is not None and graft.id not in self.rejected:
                self.rejected[graft.id] = found
                self.progress.message(f"{graft.label} is rolled back ({found[0].value}): {found[1]}")
            previous = samples[step.name]
        parities = {step.name: self.parities[frozenset(step.grafts)] for step in rungs}
        facts = {graft.id: graft for graft in self.facts}
        return ledger.configurations(rungs, samples, facts, parities | {STOCK: stock}, self.settings.batch)

    def conclude(
        self,
        rows: tuple[Configuration, ...],
        workers_ready: Sequence[WorkerArm],
        failures: dict[str, str],
        steps: int,
        stock_parity: Parity,
    ) -> BatchLedger:
        """Step 4, and the assembly of everything found."""
        settings = self.settings
        kept = tuple(graft.id for graft in self.facts if graft.id not in self.rejected)
        final = Step(FINAL, kept, None)
        eager = dict.fromkeys([settings.base_rung, *(r for r in settings.rungs if not r.compiled)])
        arms: list[Arm] = [self.stock_arm(rung.value, rung) for rung in eager]
        arms += [*workers_ready, self.patched_arm(final)]
        samples, dropped = interleave(
            arms, rounds=settings.rounds, steps=steps, title="headline", progress=self.progress
        )
        rungs = ledger.rung_rows(
            settings.rungs,
            {name: taken for name, taken in samples.items() if name != FINAL},
            failures | dropped,
            settings.batch,
            {arm.name: arm.compile_seconds for arm in workers_ready},
            {arm.name: arm.peak_rss_bytes for arm in workers_ready},
        )
        self.patch.set_active(kept)
        if frozenset(kept) not in self.parities:
            self.parities[frozenset(kept)] = self.parity(self.forward)
        final_row = ledger.configurations(
            [final],
            {STOCK: samples[settings.base_rung.value], FINAL: samples[FINAL]},
            {graft.id: graft for graft in self.facts},
            {FINAL: self.parities[frozenset(kept)]},
            settings.batch,
        )[1]
        top = ledger.headline(
            rungs,
            samples[FINAL],
            model=settings.model_name,
            device=settings.device,
            dtype=settings.dtype,
            batch=settings.batch,
        )
        return BatchLedger(
            batch=settings.batch,
            prompt=settings.prompt,
            tokens=settings.tokens,
            cache_len=int(self.engine.cache.get_max_length()),
            configurations=rows,
            final=final_row,
            rungs=rungs,
            grafts=tuple(self.outcome(graft, rows) for graft in self.facts),
            unserved=self.capture.unserved,
            stock_parity=stock_parity,
            headline=top,
            steps_per_sample=steps,
            capture_seconds=self.capture.seconds,
        )

    def outcome(self, graft: GraftFacts, rows: Sequence[Configuration]) -> GraftOutcome:
        """The row of one graft."""
        row = next((row for row in rows if row.added == graft.id), None)
        reason, detail = self.rejected.get(graft.id, (None, ""))
        sites = len(self.capture.sites_of(graft.id))
        steps, launches = self.launches.get(graft.id, (0, 0))
        return GraftOutcome(
            graft=graft.id,
            task_id=graft.task_id,
            family=graft.family,
            letter=graft.family.letter,
            candidate_sha=graft.candidate_sha,
            kept=reason is None,
            reason=reason,
            detail=detail,
            sites=sites,
            steps=steps,
            expected_launches=sites * steps,
            launches=launches,
            isolated_speedup=graft.isolated_speedup,
            share=graft.share,
            projected_step_speedup=ledger.projection([graft]),
            measured_step_speedup=row.step_speedup if row else None,
            packed=self.capture.is_packed(graft.id),
        )

    def stock_arm(self, name: str, rung: Rung) -> LocalArm:
        """The unpatched model in eager mode; between samples the captured graph's attention is put back."""
        engine, model, base = self.engine, self.model, self.settings.attention

        def forward(*args: Any, **kwargs: Any) -> Any:
            return model(*args, **kwargs)

        return LocalArm(
            name,
            engine,
            forward,
            enter=lambda: use_attention(model, rung.value),
            leave=lambda: use_attention(model, base),
        )

    def patched_arm(self, step: Step) -> LocalArm:
        """The captured graph with the step's grafts."""
        switch: Callable[[], None] = lambda: self.patch.set_active(step.grafts)  # noqa: E731
        return LocalArm(step.name, self.engine, self.forward, enter=switch)


@contextmanager
def workers(settings: BatchSettings, progress: Progress) -> Iterator[tuple[list[WorkerArm], dict[str, str]]]:
    """Start the compiled rungs' processes; they compile while the caller screens grafts. Always ends them."""
    arms: list[WorkerArm] = []
    with ExitStack() as closing:
        for rung in settings.rungs:
            if not rung.compiled:
                continue
            progress.message(f"compiling the rung {rung.value} in a process of its own")
            arm = WorkerArm(
                WorkerSpec(
                    rung=rung.value,
                    model=settings.model_name,
                    revision=settings.revision,
                    dtype=settings.dtype,
                    attention=COMPILED_ATTENTION,
                    seed=settings.seed,
                    batch=settings.batch,
                    prompt=settings.prompt,
                    tokens=settings.tokens,
                    threads=settings.threads,
                )
            )
            closing.callback(arm.close)
            arms.append(arm)
        yield arms, {}

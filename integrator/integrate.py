"""``integrate``: graft a run's accepted kernels into its model, measure, and write ``ledger.json``."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import torch

from extractor.errors import KernelgraftError, UsageError
from extractor.models import LoadedModel, load_model
from extractor.progress import Progress, SilentProgress
from extractor.run_folder import RunFolder, RunManifest, write_json
from extractor.versions import versions
from integrator.batch_run import CHUNK_STEPS, BatchRun, BatchSettings
from integrator.engine import clock_name
from integrator.graph_patch import GraphPatch
from integrator.kernels import AcceptedKernel, accepted_kernels
from integrator.ledger_schema import BatchLedger, Ledger, LedgerSettings, Rung
from integrator.parity import PARITY_MULTIPLE
from integrator.rungs import parse_rungs
from integrator.seams import seam_finder

DEFAULT_RUNGS = (Rung.SDPA, Rung.EAGER)
DEFAULT_ROUNDS = 8

NOTES = (
    "Prefill runs stock: grafts serve decode steps only.",
    "Each sample is seconds a step over a chunk of decode steps with forced tokens (settings.clock; thread_time is "
    "CPU seconds); every step also computes the greedy argmax. Arms take turns; ratios are formed a round.",
    "The configuration 'graph' holds no graft: what it gains over stock is Python and module overhead that the "
    "captured graph leaves out.",
)


class UnmeasuredDevice(KernelgraftError):
    """There is no trustworthy clock for this device yet."""

    template = (
        "integrate measures on the CPU only so far, and run {run} is for {device}; extract with --device cpu"
    )


class NoSuchBatch(UsageError):
    """A batch the run was not extracted for."""

    template = (
        "run {run} was extracted for batches {known}, not {batch}; extract it again with --batch {batch}"
    )


class TooFewRounds(UsageError):
    """Intervals need samples."""

    template = "--rounds {rounds} is too few for an interval; use at least 2"


def integrate(
    run: RunFolder,
    *,
    rungs: Sequence[str] = tuple(DEFAULT_RUNGS),
    batches: Sequence[int] | None = None,
    rounds: int = DEFAULT_ROUNDS,
    keep_all: bool = False,
    progress: Progress | None = None,
) -> Ledger:
    """Measure every batch's ledger and write it to ``run.ledger_path``.

    Args:
        rungs: names of stock rungs to beat (:class:`Rung`). The one with the captured graph's attention is always
            measured.
        batches: a subset of the run's batches; all by default.
        rounds: samples an arm; even numbers cancel drift best.
        keep_all: keep grafts that make the step slower (all other rollbacks still apply).

    Raises:
        NoGrafts, CorruptGrafts, CorruptTask, UndecodableCache, UnmeasuredDevice, NoSuchBatch, UnknownRung.
    """
    progress = progress or SilentProgress()
    manifest = run.manifest
    asked = parse_rungs(rungs)
    if manifest.device != "cpu":
        raise UnmeasuredDevice(run=run.path, device=manifest.device)
    if rounds < 2:
        raise TooFewRounds(rounds=rounds)
    chosen = tuple(batches) if batches else manifest.batches
    for batch in chosen:
        if batch not in manifest.batches:
            raise NoSuchBatch(run=run.path, known=", ".join(map(str, manifest.batches)), batch=batch)
    kernels = accepted_kernels(run)
    threads = torch.get_num_threads()
    torch.set_num_threads(manifest.threads)
    try:
        clock = clock_name()
        loaded = load_model(
            manifest.model,
            dtype=manifest.dtype,
            attention=manifest.attention,
            device=manifest.device,
            seed=manifest.seed,
            revision=manifest.revision,
        )
        ledgers = [
            _batch_ledger(loaded, manifest, kernels, batch, asked, rounds, keep_all, progress)
            for batch in chosen
        ]
    finally:
        torch.set_num_threads(threads)
    ledger = Ledger(
        model=manifest.model,
        device=manifest.device,
        dtype=manifest.dtype,
        attention=loaded.attention,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        settings=LedgerSettings(
            rounds=rounds,
            steps_per_sample=CHUNK_STEPS,
            threads=manifest.threads,
            clock=clock,
            keep_all=keep_all,
            parity_multiple=PARITY_MULTIPLE,
            rungs_asked=asked,
        ),
        batches=tuple(ledgers),
        peak_rss_bytes=peak_rss_bytes(),
        versions=versions(),
        notes=NOTES,
    )
    write_json(run.ledger_path, ledger)
    return ledger


def _batch_ledger(
    loaded: LoadedModel,
    manifest: RunManifest,
    kernels: Sequence[AcceptedKernel],
    batch: int,
    rungs: tuple[Rung, ...],
    rounds: int,
    keep_all: bool,
    progress: Progress,
) -> BatchLedger:
    settings = BatchSettings(
        model_name=manifest.model,
        device=manifest.device,
        dtype=manifest.dtype,
        attention=loaded.attention,
        batch=batch,
        prompt=manifest.prompt,
        tokens=manifest.tokens,
        seed=manifest.seed,
        rounds=rounds,
        keep_all=keep_all,
        rungs=rungs,
        threads=manifest.threads,
        revision=manifest.revision,
    )
    facts = tuple(found for kernel in kernels if (found := kernel.facts(batch)) is not None)
    patch = GraphPatch(loaded.model, kernels, seam_finder(loaded.model))
    try:
        return BatchRun(loaded.model, patch, facts, settings, progress).measure()
    finally:
        patch.release()
        for kernel in kernels:
            kernel.release()
        gc.collect()


def peak_rss_bytes() -> int:
    """The most memory this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

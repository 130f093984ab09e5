"""The four stages over one run folder, each with its table: what the front door's commands are made of."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from extractor.errors import UsageError
from extractor.run_folder import RunFolder, RunManifest
from extractor.versions import versions
from integrator.report.build import now
from integrator.report.clean import one_line
from integrator.report.stages import StageLog, timed_stage
from integrator.report.tables import (
    print_census,
    print_dropped,
    print_headline,
    print_ledger,
    print_search,
    print_tasks,
)
from integrator.report.terminal import Attentive, watcher

if TYPE_CHECKING:
    from extractor.progress import Progress
    from integrator.options import ExtractOptions, LedgerOptions, SearchOptions
    from optimizer.policies.protocol import Policy

POLICIES = ("catalog",)


class UnknownPolicy(UsageError):
    """A policy this installation does not have."""

    template = "unknown policy {name!r}; choose from: {known}"


@dataclass(frozen=True)
class Pipeline:
    """One run folder and the console its progress is shown on.

    ``check`` is called at every step of every stage and may raise KeyboardInterrupt to stop it.
    """

    folder: Path
    console: Console
    check: Callable[[], None] = lambda: None

    @property
    def run(self) -> RunFolder:
        """The folder as a run."""
        return RunFolder(self.folder)

    @contextmanager
    def locked(self, *, existing: bool = False) -> Iterator[Pipeline]:
        """Hold the folder for this process. ``existing`` refuses to make a new one.

        Raises:
            RunMissing, RunBusy, RunUnwritable: one sentence each.
        """
        if existing:
            self.run.open()
        with self.run.lock():
            yield self

    def extract(self, options: ExtractOptions, *, reuse: bool = False) -> None:
        """Write the run's task folders and census, and show them.

        Args:
            options: what to extract.
            reuse: keep the tasks of an earlier, finished extraction of the same scope.
        """
        if reuse and self._extracted(options):
            self._say(f"extract: the tasks in {self.folder} are kept")
        else:
            self._extract(options)
        print_tasks(self.console, self.run)
        print_census(self.console, self.run)

    def optimize(self, options: SearchOptions) -> None:
        """Search every task, write ``grafts.json``, and show the best of each."""
        from integrator.report.assemble import task_scores
        from optimizer.judge.settings import JudgeSettings
        from optimizer.optimize import optimize

        policy = make_policy(options.policy)
        notes = {
            "policy": policy.name,
            "budget": str(options.budget),
            "sick_tasks": "included" if options.include_sick else "left out",
        }
        with timed_stage(self.folder, "optimize", **notes):
            report = optimize(
                self.run,
                policy=policy,
                budget=options.budget,
                families=options.families,
                resume=options.resume,
                judge_settings=JudgeSettings(threads=options.threads),
                progress=self._progress(),
                seed=options.seed,
                include_sick=options.include_sick,
            )
        print_search(self.console, task_scores(self.run))
        self._say(f"optimize: {report.summary}")

    def integrate(self, options: LedgerOptions) -> None:
        """Graft, measure, roll back, and write ``ledger.json``."""
        from integrator.integrate import DEFAULT_ROUNDS, DEFAULT_RUNGS, integrate

        with timed_stage(self.folder, "integrate"):
            integrate(
                self.run,
                rungs=options.rungs or DEFAULT_RUNGS,
                rounds=options.rounds or DEFAULT_ROUNDS,
                keep_all=options.keep_all,
                progress=self._progress(),
            )

    def report(self) -> None:
        """Write the report's three files and show the ledger and the headline."""
        from integrator.report import write_report

        report = write_report(self.run)
        print_ledger(self.console, report)
        print_headline(self.console, report)
        self._say(f"report: {self.run.page_path}")

    def _extracted(self, options: ExtractOptions) -> bool:
        """Whether a finished extraction of the same settings lies in the folder.

        Raises RunMismatch if it was made with others.
        """
        if not self.run.manifest_path.exists():
            return False
        present = self.run.manifest
        wanted = self._manifest(options, options.attention)
        if options.attention == "auto":
            wanted = wanted.model_copy(update={"attention": present.attention})
        self.run.create(wanted)
        return (
            self.run.census_path.exists() and StageLog.load(self.folder).notes.get("scope") == options.scope
        )

    @staticmethod
    def _manifest(options: ExtractOptions, attention: str) -> RunManifest:
        """The manifest of a run with these options; ``attention`` is the resolved implementation."""
        return RunManifest(
            model=options.model,
            dtype=options.dtype,
            device=options.device,
            attention=attention,
            batches=options.batches,
            prompt=options.prompt,
            tokens=options.tokens,
            seed=options.seed,
            threads=options.threads,
            created=now(),
            versions=versions(),
        )

    def _extract(self, options: ExtractOptions) -> None:
        import torch

        from extractor.extract import extract
        from extractor.models import load_model

        torch.set_num_threads(options.threads)
        progress = self._progress()
        with timed_stage(self.folder, "extract", scope=options.scope):
            loaded = load_model(
                options.model,
                dtype=options.dtype,
                attention=options.attention,
                device=options.device,
                seed=options.seed,
            )
            self.run.create(self._manifest(options, loaded.attention))
            report = extract(
                loaded,
                self.run,
                batches=options.batches,
                prompt=options.prompt,
                tokens=options.tokens,
                families=options.families,
                copy_weights=options.copy_weights,
                progress=progress,
            )
            del loaded
            gc.collect()  # the integrator loads the model anew; two copies would double the peak
        print_dropped(self.console, report.dropped)

    def _progress(self) -> Progress:
        return Attentive(watcher(self.console), self.check)

    def suggest(self, command: str) -> None:
        """Say which command comes next."""
        self._say(f"next: {shlex.join(['kernelgraft', command, str(self.folder)])}")

    def _say(self, text: str) -> None:
        self.console.print(Text(one_line(text)), soft_wrap=True)


def make_policy(name: str) -> Policy:
    """The policy of that name, ready for this machine. Raises UnknownPolicy."""
    if name not in POLICIES:
        raise UnknownPolicy(name=name, known=", ".join(POLICIES))
    from optimizer.machine import machine_facts
    from optimizer.policies.catalog import CatalogPolicy

    return CatalogPolicy(machine_facts())

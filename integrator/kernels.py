"""A run's accepted kernels, ready to be bound: from ``grafts.json`` and the task folders to :class:`Kernel` objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import torch

from extractor.errors import KernelgraftError
from extractor.families import Family
from extractor.laws import torch_dtype
from extractor.run_folder import RunFolder
from extractor.schema import Phase, TaskSpec, Workload
from extractor.task import load_tasks
from integrator.graft import Graft
from integrator.ledger import GraftFacts
from integrator.packing import HUGE_PAGE
from optimizer.candidate import Candidate, Language
from optimizer.grafts import GraftFile, GraftRecord, load_candidate
from optimizer.languages.cpp import CppBuilder
from optimizer.languages.cpp_call import CppKernel, PackedWeights


class UnknownTask(KernelgraftError):
    """A graft whose task is not in the run, or is another one now."""

    template = "graft of task {task} in {run} has no such task any more; optimize the run again"


class LanguageNotIntegrated(KernelgraftError):
    """A candidate in a language that cannot run inside a model here."""

    template = "graft {graft} is written in {language}, which this version integrates only as cpp"


@dataclass
class AcceptedKernel:
    """One accepted C++ candidate. Built when first bound; packed once a set of weights, however often bound.

    ``workloads`` are the decode workloads it was accepted for. Its weights are worth placing in huge pages if there
    are enough of them and it reads them where they lie.
    """

    record: GraftRecord
    candidate: Candidate
    workloads: tuple[Workload, ...]
    weight_bytes: int  # of one site
    _packed: dict[tuple[int, ...], PackedWeights] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.record.task_id}@{self.record.candidate_sha[:8]}"

    @property
    def op_key(self) -> str:
        return self.record.op_key

    @property
    def family(self) -> Family:
        return self.record.family

    @property
    def packs_weights(self) -> bool:
        return self.weight_bytes >= HUGE_PAGE and not self._library.repacks

    def serves(self, batch: int, rows: int) -> bool:
        return self.workload(batch, rows) is not None

    def workload(self, batch: int, rows: int) -> Workload | None:
        """The accepted decode workload of that size, or None."""
        for workload in self.workloads:
            if workload.batch == batch and workload.rows == rows:
                return workload
        return None

    def bind(
        self,
        weights: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> Graft:
        """Raises CompileFailed, KernelUnloadable, LanguageNotIntegrated."""
        key = tuple(weight.data_ptr() for weight in weights)
        if key not in self._packed:
            self._packed[key] = self._library.pack(weights)
        return self._library.bind(weights, inputs, outputs, packed=self._packed[key])

    def limited(self, keep: Callable[[Workload], bool]) -> AcceptedKernel:
        """The same kernel for fewer workloads."""
        kept = tuple(workload for workload in self.workloads if keep(workload))
        return AcceptedKernel(self.record, self.candidate, kept, self.weight_bytes)

    def release(self) -> None:
        """Free the packed weights."""
        self._packed.clear()

    def facts(self, batch: int) -> GraftFacts | None:
        """What the ledger knows of it at one batch; None if it was not accepted for that batch."""
        workload = self.workload(batch, batch)
        if workload is None:
            return None
        return GraftFacts(
            id=self.id,
            task_id=self.record.task_id,
            family=self.family,
            candidate_sha=self.record.candidate_sha,
            isolated_speedup=self.record.ratios.get(workload.id),
            share=workload.share,
        )

    @cached_property
    def _library(self) -> CppKernel:
        if self.record.language is not Language.CPP:
            raise LanguageNotIntegrated(graft=self.id, language=self.record.language.value)
        return CppKernel.load(CppBuilder().build(self.candidate).path)


def accepted_kernels(run: RunFolder) -> list[AcceptedKernel]:
    """All kernels of ``grafts.json`` that serve a decode workload, in letter order.

    Raises:
        NoGrafts, CorruptGrafts, CorruptTask, UnknownTask.
    """
    grafts = GraftFile.load(run.path)
    specs = {task.id: task.spec for task in load_tasks(run.tasks_dir)}
    kernels = []
    for record in grafts.grafts:
        spec = specs.get(record.task_id)
        if spec is None or spec.op_key != record.op_key:
            raise UnknownTask(task=record.task_id, run=run.path)
        workloads = _decode_workloads(spec, record.workloads)
        if workloads:
            candidate = load_candidate(run.path, record)
            kernels.append(AcceptedKernel(record, candidate, workloads, _weight_bytes(spec)))
    return sorted(kernels, key=lambda kernel: (kernel.family.order, kernel.id))


def _weight_bytes(spec: TaskSpec) -> int:
    return sum(prod(weight.shape) * torch_dtype(weight.dtype).itemsize for weight in spec.weights)


def _decode_workloads(spec: TaskSpec, wanted: Sequence[str]) -> tuple[Workload, ...]:
    return tuple(w for w in spec.workloads if w.phase is Phase.DECODE and w.id in wanted)

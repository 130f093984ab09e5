"""What one judge measures against, prepared once per task: memory, trial inputs, right answers, eager models.

Vocabulary. A *subject* is one workload under judgement, or the held-out one. Its *check region* holds the trials, its
*timing region* (timed subjects only) the slots of timed batches. Weights exist in several copies of different values:
timed calls rotate over them so that they come from memory, as in a model with many layers.

All of it lies where the candidates run: in memory files on the CPU, in shared device memory on a GPU. Values are always
drawn on the CPU and copied, so that a seed means the same everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from extractor.errors import KernelgraftError
from extractor.program import move_to, state_of
from extractor.schema import Phase, TensorSpec, Workload
from extractor.task import Task
from optimizer.judge.arena import Arena, Layout, Region, dense_strides, layout_of, layouts_of, place
from optimizer.judge.device_facts import available_bytes, cache_bytes, quick_seconds
from optimizer.judge.draws import (
    Refresher,
    Refreshes,
    WeightChange,
    copy_into,
    draw_trial,
    fill_weights,
    from_source,
    moved,
)
from optimizer.judge.heldout import held_out_workload
from optimizer.judge.oracle import eager_outputs, exact_outputs, widen
from optimizer.judge.pristine import Pristine
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.source_draws import SourceRefresher
from optimizer.judge.tolerance import Allowance, Truth, with_usual
from optimizer.languages.abi import ITEM_BYTES
from optimizer.machine import MachineFacts

# Copies together exceed the last-level cache this many times.
CACHE_MULTIPLE = 3
MAX_COPIES = 64
MAX_SLOTS = {"cpu": 256, "cuda": 512}
# A timed batch should last this long, so that waking the worker (about 10 us, subtracted) hardly matters.
BATCH_SECONDS = 2e-3
# On a device a first measurement is mostly launches, of which a graph replay of the same calls has none.
DEVICE_BATCH_SECONDS = 50e-3
# Activations of a call smaller than this stay in cache between producer and consumer in a model, and here; larger
# ones (a key-value cache) get enough slots to be cold too, unless the weights sweep the cache between calls anyway.
COLD_ACTIVATION_BYTES = 128 << 10
# Truths of one workload may take this much memory; beyond, it gets fewer trials (at least two).
TRUTH_BYTES = 256 << 20


@dataclass(frozen=True)
class Side:
    """One side (inputs or outputs) of a subject: where the trials and the timed slots lie."""

    check: Region
    timing: Region | None


@dataclass(frozen=True)
class Subject:
    """One workload under judgement with everything known about it.

    ``eager_seconds`` is a rough first measurement, 0.0 where it is not timed.
    """

    workload: Workload
    timed: bool
    trials: int
    eager_seconds: float
    inputs: Side
    outputs: Side
    truths: tuple[tuple[Truth, ...], ...]  # per trial, per output; the last trial is under changed weights
    allowances: tuple[Allowance, ...]
    refresher: Refreshes | None

    @property
    def id(self) -> str:
        return self.workload.id


class NotEnoughMemory(KernelgraftError):
    """A task's tensors and their copies do not fit."""

    template = (
        "judging {task} needs {needed} MiB of memory and {available} MiB are available; "
        "close other programs or judge smaller tasks"
    )


class NoExactAnswer(KernelgraftError):
    """The reference cannot be run in double precision, which every threshold rests on."""

    template = "the reference of {task} does not run in double precision: {problem}"


class Subjects:
    """All subjects of one task with the memory they live in.

    Opening draws weights and trials and computes the right answers: from tenths of a second to a few seconds for a
    large lm_head. Extra memory: the copies (see ``JudgeSettings.memory_bytes``) plus one of each tensor.

    Attributes:
        device: where inputs, weights, outputs and right answers are.
        inputs, weights, outputs: the arenas. What may not be written is sealed on the CPU; on a GPU nothing can be,
            and the checker compares (see ``guards``).
        copies: distinct weight copies, the slots of ``weight_region``; ``models`` are eager models over them.
        seeds: under which a candidate's model of each copy is constructed, and last the one for changed weights,
            which lie where copy 0 does. Inputs are drawn by other seeds.
        change: puts the changed weights in place and back; None for a task without weights.
        guards: by kind (``inputs``, ``weights``), copies of what a candidate could write to and must not.

    Raises:
        NotEnoughMemory: they do not fit.
    """

    def __init__(self, task: Task, settings: JudgeSettings, machine: MachineFacts) -> None:
        self.task = task
        self.device = torch.device(settings.device)
        self._settings = settings
        self._machine = machine
        seed = random.SystemRandom().getrandbits(62) if settings.seed is None else settings.seed
        self.dice = random.Random(seed)
        self._generator = torch.Generator().manual_seed(self.dice.getrandbits(62))
        self._arenas: list[Arena] = []
        self.guards: dict[str, Pristine] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the memory back."""
        for arena in self._arenas:
            arena.close()

    def _open(self) -> None:
        self._open_weights()
        drafts = [self._draft(workload, timed) for workload, timed in self._workloads()]
        held_out = held_out_workload(self.task.spec)
        if held_out is not None:
            draft = self._try_draft(held_out)
            drafts += [draft] if draft else []
        input_regions, output_regions = [], []
        input_end = output_end = 0
        for draft in drafts:
            for slots in (draft.trials, draft.slots):
                inputs = place(layouts_of(draft.workload.inputs), input_end, slots)
                outputs = place(layouts_of(draft.workload.outputs), output_end, slots)
                input_regions.append(inputs)
                output_regions.append(outputs)
                input_end, output_end = inputs.end, outputs.end
        self.inputs = self._arena("kernelgraft-inputs", input_end)
        self.outputs = self._arena("kernelgraft-outputs", output_end)
        for region in input_regions:
            self.inputs.poison_inputs(region)
        subjects = []
        for index, draft in enumerate(drafts):
            pair = slice(2 * index, 2 * index + 2)
            subjects.append(self._subject(draft, input_regions[pair], output_regions[pair]))
        self.subjects = tuple(self._with_truths(subjects))
        self.inputs.seal()
        self.weights.seal()
        self.guards = {
            kind: Pristine(arena.bytes)
            for kind, arena in (("inputs", self.inputs), ("weights", self.weights))
            if not arena.sealed
        }

    def _arena(self, name: str, size: int) -> Arena:
        available = available_bytes(self.device)
        if size > available:
            raise NotEnoughMemory(task=self.task.id, needed=size >> 20, available=available >> 20)
        arena: Arena
        if self.device.type == "cpu":
            arena = Arena(name, size)
        else:
            from optimizer.judge.device.arena import DeviceArena

            arena = DeviceArena(name, size, str(self.device))
        self._arenas.append(arena)
        return arena

    @contextmanager
    def changed_weights(self) -> Iterator[None]:
        """The other weights in copy 0's place; nothing happens for a task without weights."""
        if self.change is None:
            yield
            return
        guard = self.guards.get("weights")
        self.change.apply()
        if guard is not None:
            guard.renew()
        try:
            yield
        finally:
            if guard is not None:
                guard.restore()
            self.change.restore()
            if guard is not None:
                guard.renew()

    def refresh(self, subject: Subject) -> None:
        """Fresh inputs in every slot of a subject's timing region."""
        assert subject.refresher is not None
        subject.refresher.refresh(self.dice)
        if (guard := self.guards.get("inputs")) is not None:
            guard.renew()

    @property
    def cache_bytes(self) -> int:
        """The last cache before memory: what cold data must exceed."""
        return cache_bytes(self.device, self._machine)

    def _open_weights(self) -> None:
        specs = self.task.spec.weights
        layouts = [
            Layout(spec.attribute, spec.shape, dense_strides(spec.shape), spec.dtype) for spec in specs
        ]
        one = place(layouts, 0, 1)
        self.weight_bytes = sum(placed.span for placed in one.tensors)
        self.copies = self._copies()
        self.weight_region = place(layouts, 0, self.copies)
        self.weights = self._arena("kernelgraft-weights", self.weight_region.end)
        self.weights.poison_inputs(self.weight_region)
        self.seeds = tuple(self.dice.getrandbits(62) for _ in range(self.copies + 1))
        self.models = self._models()
        first = self.weights.slot(self.weight_region, 0)
        if not specs:
            self.change = None
        elif self.task.spec.constructed:
            state = state_of(self.task.construct(self.seeds[-1]))
            self.change = WeightChange.to(first, [state[spec.attribute] for spec in specs])
        else:
            self.change = WeightChange.shuffled(first, self.dice)

    def _copies(self) -> int:
        if not self.weight_bytes:
            return 1
        wanted = -(-CACHE_MULTIPLE * self.cache_bytes // self.weight_bytes)
        affordable = max(1, self._settings.memory_bytes // self.weight_bytes)
        return max(1, min(wanted, affordable, MAX_COPIES))

    def _models(self) -> list[torch.nn.Module]:
        """Eager models over all weight copies, which are given their values here."""
        specs = self.task.spec.weights
        if not self.task.spec.constructed:
            fill_weights(specs, self.weights, self.weight_region, self._generator, self.dice)
            return [self._bound(self.task.reference(), self._weights_of(copy)) for copy in range(self.copies)]
        models = []
        for copy in range(self.copies):
            model = self.task.construct(self.seeds[copy])
            state, views = state_of(model), self._weights_of(copy)
            for attribute, view in views.items():
                view.copy_(state[attribute])
            models.append(self._bound(model, views))
        return models

    def _bound(self, model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> torch.nn.Module:
        """The model over these weights, on the device with what else it holds."""
        self.task.load_weights_into(model, weights)
        return model if self.device.type == "cpu" else move_to(model, self.device)

    def _weights_of(self, copy: int) -> dict[str, torch.Tensor]:
        views = self.weights.slot(self.weight_region, copy)
        return {spec.attribute: view for spec, view in zip(self.task.spec.weights, views, strict=True)}

    def _workloads(self) -> list[tuple[Workload, bool]]:
        spec = self.task.spec
        decode = tuple(w.id for w in spec.workloads if w.phase is Phase.DECODE)
        timed = self._settings.timed_workloads or decode or tuple(w.id for w in spec.workloads)
        return [(workload, workload.id in timed) for workload in spec.workloads]

    def _draft(self, workload: Workload, timed: bool) -> _Draft:
        trial = moved(draw_trial(self.task, workload, self._generator), self.device)
        outputs = eager_outputs(self.models[0], trial if timed else dense(trial))
        if not workload.outputs:
            workload = workload.model_copy(
                update={"outputs": tuple(_spec_of(o, i) for i, o in enumerate(outputs))}
            )
        seconds = quick_seconds(self.models[0], trial, self.device) if timed else 0.0
        truth_bytes = sum(output.numel() * 12 for output in outputs)
        trials = max(2, min(self._settings.trials, TRUTH_BYTES // max(truth_bytes, 1)))
        slots = self._slots(workload, seconds) if timed and self._settings.timing else 0
        return _Draft(workload, timed, trials, seconds, slots)

    def _try_draft(self, workload: Workload) -> _Draft | None:
        """The held-out draft, or None if the reference does not run on it: then the scaling guessed wrong."""
        try:
            return self._draft(workload, timed=False)
        except (RuntimeError, ValueError, IndexError):
            return None

    def _slots(self, workload: Workload, seconds: float) -> int:
        specs = (*workload.inputs, *workload.outputs)
        moved = sum(layout_of(spec).storage_elements * ITEM_BYTES[spec.dtype] for spec in specs)
        batch = BATCH_SECONDS if self.device.type == "cpu" else DEVICE_BATCH_SECONDS
        wanted = max(self.copies, int(batch / max(seconds, 1e-7)) + 1)
        swept = self.weight_bytes * self.copies >= 2 * self.cache_bytes
        if moved >= COLD_ACTIVATION_BYTES and not swept:
            wanted = max(wanted, -(-CACHE_MULTIPLE * self.cache_bytes // moved))
        affordable = max(1, self._settings.memory_bytes // 2 // max(moved, 1))
        slots = min(wanted, affordable, MAX_SLOTS[self.device.type])
        return max(slots - slots % self.copies, min(slots, self.copies))

    def _subject(self, draft: _Draft, inputs: Sequence[Region], outputs: Sequence[Region]) -> Subject:
        for slot in range(draft.trials):
            trial = draw_trial(self.task, draft.workload, self._generator)
            copy_into(self.inputs.slot(inputs[0], slot), trial)
        refresher: Refreshes | None = None
        if draft.slots:
            kind = SourceRefresher if from_source(draft.workload.inputs) else Refresher.prepare
            refresher = kind(self.task, draft.workload, self.inputs, inputs[1], self._generator)
        return Subject(
            workload=draft.workload,
            timed=draft.timed,
            trials=draft.trials,
            eager_seconds=draft.seconds,
            inputs=Side(inputs[0], inputs[1] if draft.slots else None),
            outputs=Side(outputs[0], outputs[1] if draft.slots else None),
            truths=(),
            allowances=(),
            refresher=refresher,
        )

    def _with_truths(self, subjects: Sequence[Subject]) -> list[Subject]:
        """Right answers: all trials but the last under the first weights, the last under changed ones."""
        truths: list[list[tuple[Truth, ...]]] = [[] for _ in subjects]
        self._append_truths(subjects, truths, last=False)
        with self.changed_weights():
            self._append_truths(subjects, truths, last=True)
        result = []
        for subject, trials in zip(subjects, truths, strict=True):
            columns = [with_usual(outputs) for outputs in zip(*trials, strict=True)]
            allowances = tuple(Allowance.of(outputs, self._settings.profile) for outputs in columns)
            known = tuple(zip(*columns, strict=True))
            result.append(replace(subject, truths=known, allowances=allowances))
        return result

    def _append_truths(
        self, subjects: Sequence[Subject], truths: list[list[tuple[Truth, ...]]], *, last: bool
    ) -> None:
        wide, eager_model = self.task.reference(), self.models[0]
        if self.task.spec.constructed:  # what a constructor derives from its weights follows them only there
            seed = self.seeds[-1] if last else self.seeds[0]
            wide = self.task.construct(seed)
            if last:
                eager_model = self._bound(self.task.construct(seed), self._weights_of(0))
        wide = self._bound(wide, widen(self._weights_of(0)))
        for subject, trials in zip(subjects, truths, strict=True):
            chosen = range(subject.trials - 1, subject.trials) if last else range(subject.trials - 1)
            for slot in chosen:
                inputs = self.inputs.slot(subject.inputs.check, slot)
                exact = self._exact(wide, inputs)
                # Only a timed eager must see the captured strides: torch multiplies a strided [1, 1, 1024] of
                # bfloat16 a hundred times slower, and its error is the same.
                eager = eager_outputs(eager_model, inputs if subject.timed else dense(inputs))
                trials.append(tuple(_truth(a, b) for a, b in zip(exact, eager, strict=True)))

    def _exact(self, wide: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        try:
            return exact_outputs(wide, inputs)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise NoExactAnswer(task=self.task.id, problem=first) from error


@dataclass(frozen=True)
class _Draft:
    workload: Workload
    timed: bool
    trials: int
    seconds: float
    slots: int


def _truth(exact: torch.Tensor, eager: torch.Tensor) -> Truth:
    """fp64 answers of 16-bit and 8-bit tasks are kept as fp32: half the memory, and far finer than their rounding."""
    if eager.dtype.is_floating_point and eager.element_size() < 4:
        exact = exact.float()
    return Truth(exact=exact.contiguous(), eager=eager.clone())


def dense(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same values in dense memory; stride-1 axes of length 1 included."""
    return [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]


def _spec_of(output: torch.Tensor, index: int) -> TensorSpec:
    return TensorSpec(
        name=f"output{index}",
        shape=tuple(output.shape),
        stride=tuple(output.stride()),
        dtype=str(output.dtype).removeprefix("torch."),
    )

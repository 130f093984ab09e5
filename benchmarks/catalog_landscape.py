"""Measures every catalog plan on the tasks of run folders and writes the prior the policy ranks plans by.

    python benchmarks/catalog_landscape.py runs/a/tasks runs/b/tasks [--out optimizer/policies/catalog/prior.json]

One thread on the CPU clock; weights and inputs are rotated over copies that exceed the last-level cache; plans of
one task are interleaved, round by round, so that a slow moment of the machine hits all of them alike. Slots whose
sizes are within a fifth of a doubling of one already measured are skipped. A task takes one to five minutes, most
of it compiling.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from extractor.laws import draw_weights
from extractor.schema import Phase, Workload
from extractor.task import Task, load_tasks
from optimizer.languages.cpp import CppBuilder
from optimizer.languages.cpp_call import CppKernel
from optimizer.machine import MachineFacts, machine_facts
from optimizer.policies.catalog.knobs import Knobs
from optimizer.policies.catalog.plans import (
    Plan,
    bodies_for,
    choices,
    features,
    kind_of,
    render,
    slot_of,
    slots_of,
)
from optimizer.policies.catalog.ranking import PRIOR, Landscape, Prior, knob_key
from optimizer.policies.catalog.semantics import Semantics, derive

ROUNDS = 5
CACHES = 3  # copies of the weights exceed the last-level cache so many times
COLD_BYTES = 1 << 17  # what a call reads stays in cache below this, as in a model
SAME = 0.2  # doublings
SMALL_CALLS = 64  # calls a sample for tasks without large weights


@dataclass(frozen=True)
class Runner:
    """Calls one plan (or eager) once on every copy of the weights."""

    key: str
    call: Callable[[], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, and print one line a slot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", type=Path, help="tasks folders of extracted runs")
    parser.add_argument("--out", type=Path, default=PRIOR)
    parser.add_argument("--keep", action="store_true", help="add to the landscapes already in the file")
    parser.add_argument("--slowest", type=float, default=0.3, help="drop plans below this share of the best")
    parser.add_argument(
        "--bodies", default="avx512_bf16,avx512f,avx2", help="those measured, as far as possible"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    machine = machine_facts()
    builder = CppBuilder()
    found: list[Landscape] = list(Prior.load(options.out).landscapes) if options.keep else []
    for folder in options.tasks:
        for task in load_tasks(folder):
            semantics = derive(task.spec)
            if semantics is None:
                continue
            for landscape in measure(task, semantics, builder, machine, found, options):
                found.append(landscape)
                write(Prior(machine=machine.key, landscapes=tuple(found)), options.out)
    return 0


def write(prior: Prior, path: Path) -> None:
    """One landscape a line, so that a new measurement is a readable diff."""
    lines = ",\n".join(landscape.model_dump_json() for landscape in prior.landscapes)
    head = json.dumps({"schema_version": prior.schema_version, "machine": prior.machine})
    path.write_text(f'{head[:-1]}, "landscapes": [\n{lines}\n]}}\n', encoding="utf-8")


def measure(
    task: Task,
    semantics: Semantics,
    builder: CppBuilder,
    machine: MachineFacts,
    known: Sequence[Landscape],
    settings: argparse.Namespace,
) -> list[Landscape]:
    """The landscapes of a task's decode slots that ``known`` lacks."""
    kind = kind_of(semantics)
    timed = tuple(w for w in task.spec.workloads if w.phase is Phase.DECODE)
    slots = {slot_of(semantics, workload): workload for workload in timed}
    wanted = {
        slot: workload
        for slot, workload in slots.items()
        if slot in slots_of(semantics, timed)
        and not any(
            item.kind == kind
            and item.dtype == semantics.dtype
            and max(abs(a - b) for a, b in zip(item.features, features(semantics, slot, timed), strict=True))
            < SAME
            for item in known
        )
    }
    if not wanted:
        return []
    sets = _sets(task, wanted, machine)
    runners: dict[int, list[Runner]] = {slot: [_eager(task, slot, sets)] for slot in wanted}
    options: list[tuple[str, Knobs]] = []
    for body in bodies_for(semantics, machine.isa):
        if body not in settings.bodies.split(","):
            continue
        union = {knobs: None for slot in wanted for knobs in choices(semantics, slot, body)}
        options += [(body, knobs) for knobs in union]
    for body, knobs in options:
        fitting = [slot for slot in wanted if knobs in choices(semantics, slot, body)]
        plan = Plan(kind, body, tuple((slot, knobs) for slot in fitting))
        kernel = CppKernel.load(builder.build_source(render(task.spec, semantics, plan)).path)
        for slot in fitting:
            runners[slot].append(_bound(wanted[slot], slot, sets, kernel, knob_key(body, knobs)))
    landscapes = []
    for slot, candidates in runners.items():
        seconds = _interleaved(candidates)
        eager = seconds.pop("eager")
        best = min(seconds.values())
        speeds = {
            key: round(best / value, 3) for key, value in seconds.items() if best / value >= settings.slowest
        }
        place = features(semantics, slot, timed)
        fastest = max(speeds, key=lambda key: speeds[key])
        print(
            f"{task.id} M={slot}: best {fastest} {eager / best:.2f}x eager, {len(speeds)} plans", flush=True
        )
        landscapes.append(Landscape(kind=kind, dtype=semantics.dtype, features=place, speeds=speeds))
    return landscapes


@dataclass(frozen=True)
class Set:
    """One copy of everything a call reads."""

    weights: list[torch.Tensor]
    inputs: dict[
        int, list[torch.Tensor]
    ]  # by slot: recorded values, so that masks are as long as in the model


def _sets(task: Task, wanted: dict[int, Workload], machine: MachineFacts) -> list[Set]:
    """Copies that together exceed the last-level cache; one where a call reads next to nothing."""
    drawn = draw_weights(task.spec.weights, torch.Generator().manual_seed(0))
    names = [weight.attribute for weight in task.spec.weights]
    largest = max(sum(t.nbytes for t in task.recorded_inputs(w.id)) for w in wanted.values())
    size = largest + sum(tensor.nbytes for tensor in drawn.values())
    copies = 1 if size < COLD_BYTES else -(-CACHES * machine.l3_bytes // size)
    return [
        Set(
            [drawn[name].clone() for name in names],
            {slot: task.recorded_inputs(workload.id) for slot, workload in wanted.items()},
        )
        for _ in range(copies)
    ]


def _eager(task: Task, slot: int, sets: list[Set]) -> Runner:
    models = []
    for item in sets:
        model = task.reference()
        names = [weight.attribute for weight in task.spec.weights]
        task.load_weights_into(model, dict(zip(names, item.weights, strict=True)))
        models.append((model, item.inputs[slot]))
    models = models * (SMALL_CALLS if len(sets) == 1 and _is_small(sets[0]) else 1)

    def call() -> None:
        with torch.no_grad():
            for model, inputs in models:
                model(*inputs)

    return Runner("eager", call)


def _bound(workload: Workload, slot: int, sets: list[Set], kernel: CppKernel, key: str) -> Runner:
    bound = [
        (kernel.bind(item.weights, workload.inputs, workload.outputs), item.inputs[slot]) for item in sets
    ]
    bound = bound * (SMALL_CALLS if len(sets) == 1 and _is_small(sets[0]) else 1)

    def call() -> None:
        for kernel_call, inputs in bound:
            kernel_call(*inputs)

    return Runner(key, call)


def _is_small(item: Set) -> bool:
    return sum(tensor.nbytes for tensor in item.weights) < COLD_BYTES


def _interleaved(runners: Sequence[Runner]) -> dict[str, float]:
    """Median CPU seconds of one pass of each runner."""
    samples: dict[str, list[float]] = {runner.key: [] for runner in runners}
    for runner in runners:
        runner.call()
    for _ in range(ROUNDS):
        for runner in runners:
            start = time.thread_time()
            runner.call()
            samples[runner.key].append(time.thread_time() - start)
    return {key: statistics.median(values) for key, values in samples.items()}


if __name__ == "__main__":
    sys.exit(main())

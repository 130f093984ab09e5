"""Extract a model's operators as tasks: capture, detect, record, write, verify, and measure the shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from extractor.binding import bind
from extractor.capture import StepGraph, cache_length, capture_steps
from extractor.census import Census, StepCensus, summarise
from extractor.detect import detect_all
from extractor.emit import Program, write_program, write_task_source
from extractor.execute import Recording, Snapshot, parameter_values, record
from extractor.expressions import Unwritable
from extractor.families import Family
from extractor.graph import shape_of
from extractor.keys import dtype_name
from extractor.measure import measure_input, measure_weight
from extractor.models import LoadedModel
from extractor.progress import Progress, SilentProgress, stage
from extractor.publish import NotReproduced, Proof, publish
from extractor.regions import Region
from extractor.run_folder import RunFolder, write_json
from extractor.schema import (
    Health,
    Law,
    LawKind,
    Phase,
    Site,
    TaskSpec,
    TensorSpec,
    WeightSource,
    WeightSpec,
    Workload,
)
from extractor.shapes import Inexpressible, Variant
from extractor.task import Task
from extractor.timing import time_step
from extractor.versions import versions
from extractor.weights import must_copy


@dataclass(frozen=True)
class ExtractRow:
    """One line of the table. ``share`` is the share of the first decode workload's step, 0..1."""

    task_id: str
    label: str
    sites: int
    workloads: tuple[str, ...]
    share: float | None
    file: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class DroppedTask:
    """An operator that was found and not published, and why."""

    family: Family
    site: str
    reason: str


@dataclass(frozen=True)
class ExtractReport:
    """What extraction wrote and what it left out."""

    rows: tuple[ExtractRow, ...]
    dropped: tuple[DroppedTask, ...]
    census: tuple[StepCensus, ...]


@dataclass
class _Occurrences:
    """The sites of one operator with one exact shape set in one step."""

    step: StepGraph
    regions: list[Region]
    seconds: float
    step_seconds: float
    recordings: dict[int, Recording] = field(default_factory=dict)  # position in ``regions`` -> values
    weights: dict[int, list[torch.Tensor]] = field(default_factory=dict)  # in the region's order


def extract(
    loaded: LoadedModel,
    run: RunFolder,
    *,
    batches: Sequence[int] = (1,),
    prompt: int = 32,
    tokens: int = 32,
    families: Sequence[Family] | None = None,
    copy_weights: bool = False,
    progress: Progress | None = None,
) -> ExtractReport:
    """Write the task folders and ``census.json`` of a run.

    Args:
        run: an existing run folder; the caller holds its lock.
        batches: batch sizes to record, prefill and decode each.
        prompt, tokens: lengths in tokens; the static cache holds both, rounded up to a multiple of 16.
        families: only these, or all.
        copy_weights: store every weight in the task folder instead of a reference.

    Raises:
        CaptureFailed: the architecture cannot be recorded.
        RunUnwritable: the folder cannot be written.
    """
    watcher = progress if progress is not None else SilentProgress()
    found: dict[str, list[_Occurrences]] = {}
    dropped: dict[tuple[Family, str, str], DroppedTask] = {}
    censuses: list[StepCensus] = []
    with stage(watcher, "capture", len(batches) * len(Phase)):
        for batch in batches:
            length = cache_length(prompt, tokens)
            steps = capture_steps(loaded.model, tuple(Phase), batch, prompt, length)
            for step in steps:
                census, rejected = _survey(loaded, step, families, found)
                censuses.append(census)
                for item in rejected:
                    dropped.setdefault((item.family, item.site, item.reason), item)
                watcher.advance(f"{step.phase} batch {batch}")
    rows = []
    with stage(watcher, "write tasks", len(found)):
        for key in sorted(found, key=lambda key: (found[key][0].regions[0].family.order, key)):
            outcome = _write_task(loaded, run, key, found.pop(key), copy_weights)
            if isinstance(outcome, DroppedTask):
                dropped[outcome.family, outcome.site, outcome.reason] = outcome
                watcher.message(f"dropped {outcome.family.value} at {outcome.site}: {outcome.reason}")
                watcher.advance(outcome.family.value)
            else:
                rows.append(_row(outcome))
                watcher.advance(outcome.id)
    write_json(run.census_path, Census(threads=torch.get_num_threads(), steps=tuple(censuses)))
    return ExtractReport(tuple(rows), tuple(dropped.values()), tuple(censuses))


def _survey(
    loaded: LoadedModel,
    step: StepGraph,
    families: Sequence[Family] | None,
    found: dict[str, list[_Occurrences]],
) -> tuple[StepCensus, list[DroppedTask]]:
    """Detect, time and record one step; adds its operators to ``found``."""
    binding = bind(loaded.model, step.gm, step.example_inputs)
    detection = detect_all(step.gm, binding, step.dims)
    regions = list(detection.regions)
    timing = time_step(step, binding, regions)
    groups: dict[str, list[int]] = defaultdict(list)
    for index, region in enumerate(regions):
        if families is None or region.family in families:
            groups[region.exact_key].append(index)
    wanted: list[int] = []
    placed: list[tuple[_Occurrences, int]] = []
    for indices in groups.values():
        members = [regions[index] for index in indices]
        spent = sum(timing.regions[index] for index in indices)
        occurrences = _Occurrences(step, members, spent, timing.total)
        found.setdefault(members[0].op_key, []).append(occurrences)
        # The middle site is recorded, the last one checks that the program is right elsewhere too.
        for local in dict.fromkeys((len(members) // 2, len(members) - 1)):
            wanted.append(indices[local])
            placed.append((occurrences, local))
    values = parameter_values(step, binding)
    recordings = record(step, binding, [regions[index] for index in wanted])
    for (occurrences, local), recording in zip(placed, recordings, strict=True):
        occurrences.recordings[local] = recording
        region = occurrences.regions[local]
        occurrences.weights[local] = [values[name] for name in region.parameters.values()]
    rejected = [DroppedTask(item.family, item.site, item.reason) for item in detection.rejected]
    return summarise(step, regions, timing), rejected


def _write_task(
    loaded: LoadedModel, run: RunFolder, key: str, occurrences: list[_Occurrences], copy_weights: bool
) -> Task | DroppedTask:
    # Decode first: it is what get_inputs, the op records and the tables show.
    occurrences.sort(key=lambda o: (o.step.phase is not Phase.DECODE, o.step.batch))
    region = occurrences[0].regions[0]
    try:
        program = write_program([Variant(o.regions[0], o.step.dims) for o in occurrences])
        spec, proofs, copied = _assemble(loaded, key, occurrences, program, copy_weights)
        source = _source_text(spec, program)
        return publish(run.tasks_dir, spec, source, proofs, copied)
    except (Unwritable, Inexpressible, NotReproduced) as reason:
        return DroppedTask(region.family, region.site, str(reason))


def _assemble(
    loaded: LoadedModel, key: str, occurrences: list[_Occurrences], program: Program, copy_weights: bool
) -> tuple[TaskSpec, list[Proof], dict[str, torch.Tensor]]:
    region = occurrences[0].regions[0]
    # Sites may call the same weight differently (input_layernorm, post_attention_layernorm): the first one names it.
    attributes = tuple(region.weights)
    workloads: list[Workload] = []
    proofs: list[Proof] = []
    taken: set[str] = set()
    for o in occurrences:
        workload = _workload(o, program, taken)
        workloads.append(workload)
        for index in sorted(o.recordings):
            named = dict(zip(attributes, o.weights[index], strict=True))
            proofs.append(Proof(workload.id, o.recordings[index], named))
    sample = next(iter(occurrences[0].weights.values()))
    sites = _sites(occurrences, attributes)
    source = loaded.source.model_copy(update={"copied": copy_weights})
    spec = TaskSpec(
        task_id=f"{region.family.value}-{key[:10]}",
        family=region.family,
        op_key=key,
        dtype=loaded.dtype,
        weights=tuple(
            WeightSpec(
                attribute=name,
                shape=tuple(value.shape),
                dtype=dtype_name(value.dtype),
                law=measure_weight(value),
            )
            for name, value in zip(attributes, sample, strict=True)
        ),
        workloads=tuple(workloads),
        sites=sites,
        ops=program.ops,
        output_refs=program.outputs,
        health=Health(bit_exact=True),
        weight_source=source,
        attention=loaded.attention,
        versions=versions(),
    )
    return spec, proofs, _copied(loaded, source, sites, copy_weights)


def _workload(o: _Occurrences, program: Program, taken: set[str]) -> Workload:
    dims, region = o.step.dims, o.regions[0]
    base = f"decode-b{dims.batch}" if o.step.phase is Phase.DECODE else f"prefill-b{dims.batch}-s{dims.query}"
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}.{count}"
    taken.add(name)
    recording = next(iter(o.recordings.values()))
    return Workload(
        id=name,
        phase=o.step.phase,
        batch=dims.batch,
        rows=_rows(region, dims.rows),
        cache_len=dims.cache_len,
        inputs=_input_specs(region, program, recording.inputs),
        outputs=tuple(
            TensorSpec(
                name=output,
                shape=tuple(tensor.shape),
                stride=tuple(tensor.stride()),
                dtype=dtype_name(tensor.dtype),
                law=Law(kind=LawKind.RECORDED),
            )
            for output, tensor in zip(program.outputs, recording.outputs, strict=True)
        ),
        calls=len(o.regions),
        share=o.seconds / o.step_seconds if o.step_seconds else None,
        exact_key=region.exact_key,
    )


def _rows(region: Region, rows: int) -> int:
    """M; the language-model head of a prefill sees only the last position of each sequence."""
    if region.family is not Family.LM_HEAD:
        return rows
    count = 1
    for size in shape_of(region.inputs[0])[:-1]:
        count *= size
    return count


def _input_specs(region: Region, program: Program, snapshots: Sequence[Snapshot]) -> tuple[TensorSpec, ...]:
    storages = [snapshot.storage for snapshot in snapshots]
    groups = {
        key: index for index, key in enumerate(dict.fromkeys(s for s in storages if storages.count(s) > 1))
    }
    tables = [
        name
        for node, name in zip(region.inputs, program.inputs, strict=True)
        if region.roles.get(node) in ("cos", "sin")
    ]
    experts = max(
        (shape_of(node)[0] for node in region.weights.values() if len(shape_of(node)) == 3), default=0
    )
    specs = []
    for node, name, snapshot in zip(region.inputs, program.inputs, snapshots, strict=True):
        tensor = snapshot.tensor()
        law = measure_input(tensor, region.roles.get(node, ""), experts)
        if law.kind is LawKind.ROTARY:
            law = law.model_copy(update={"partner": next((other for other in tables if other != name), None)})
        specs.append(
            TensorSpec(
                name=name,
                shape=snapshot.shape,
                stride=snapshot.stride,
                dtype=dtype_name(tensor.dtype),
                storage_offset=snapshot.offset,
                alias_group=groups.get(snapshot.storage),
                law=law,
            )
        )
    return tuple(specs)


def _sites(occurrences: list[_Occurrences], attributes: tuple[str, ...]) -> tuple[Site, ...]:
    sites: dict[tuple[str, tuple[str, ...]], Site] = {}
    for o in occurrences:
        for region in o.regions:
            names = tuple(region.parameters.values())
            parameters = dict(zip(attributes, names, strict=True))
            site = Site(name=region.site, owner=region.owner, source=region.source, parameters=parameters)
            sites.setdefault((region.site, names), site)
    return tuple(sites.values())


def _copied(
    loaded: LoadedModel, source: WeightSource, sites: Sequence[Site], everything: bool
) -> dict[str, torch.Tensor]:
    """The weights to store in the folder, by parameter name."""
    tensors = {**dict(loaded.model.named_parameters()), **dict(loaded.model.named_buffers())}
    names = {name for site in sites for name in site.parameters.values()}
    return {
        name: tensors[name].detach()
        for name in sorted(names)
        if everything or must_copy(source, name, tensors[name])
    }


def _source_text(spec: TaskSpec, program: Program) -> str:
    first = spec.workloads[0]
    notes = [
        f"Model: {spec.weight_source.model}, {spec.dtype}, attention {spec.attention}.",
        f"Sites: {len(spec.sites)}, first {spec.sites[0].name} ({spec.sites[0].owner}, {spec.sites[0].source}).",
        "Calls per step: " + ", ".join(f"{w.calls} in {w.id}" for w in spec.workloads) + ".",
        f"get_inputs() imitates {first.id}; the recorded inputs of all workloads are in inputs.safetensors.",
    ]
    return write_task_source(
        program,
        title=f"Task {spec.task_id}: family {spec.label}.",
        notes=notes,
        weights=spec.weights,
        inputs=first.inputs,
    )


def _row(task: Task) -> ExtractRow:
    spec = task.spec
    decode = [
        w.share for w in spec.workloads if w.phase is Phase.DECODE and w.batch == spec.workloads[0].batch
    ]
    known = [share for share in decode if share is not None]
    return ExtractRow(
        task_id=spec.task_id,
        label=spec.label,
        sites=len(spec.sites),
        workloads=tuple(w.id for w in spec.workloads),
        share=sum(known) if known else None,
        file=str(task.folder / "task.py"),
        flags=spec.health.flags,
    )

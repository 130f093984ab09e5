"""Import a KernelBench file, a Python file with ``Model``, ``get_inputs`` and ``get_init_inputs``, as a task folder.

The file becomes ``task.py`` unchanged. Its own code goes on drawing the inputs (law ``source``) and, in the
constructor, the weights. ``get_inputs`` is the workload ``default``; every further function ``get_inputs_NAME`` is the
workload ``NAME``. The model is judged in eval mode, as it would be served.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import torch

from extractor.errors import KernelgraftError
from extractor.families import Family
from extractor.health import examine
from extractor.kernelbench_file import (
    PREFIX,
    Constant,
    Draw,
    Problem,
    blaming,
    draw_inputs,
    init_inputs,
    input_specs,
    load_module,
    same_bits,
    shared_constants,
    stable_draw,
    stable_model,
    tensor_spec,
    unsupported,
    workload_functions,
)
from extractor.keys import dtype_name
from extractor.measure import measure_weight
from extractor.program import flat_outputs, move_to, state_of
from extractor.run_folder import make_folder, unwritable, write_json, write_text
from extractor.schema import (
    Health,
    Law,
    LawKind,
    Phase,
    Site,
    TaskSpec,
    WeightSource,
    WeightSpec,
    Workload,
)
from extractor.task import (
    DEFAULT_WORKLOAD,
    INPUT_SEED,
    TASK_SIDECAR,
    TASK_SOURCE,
    WEIGHT_SEED,
    Task,
    file_sha256,
)
from extractor.versions import versions


class NotKernelBench(KernelgraftError):
    """A file that cannot be imported as a task."""

    template = "{path} cannot be imported as a KernelBench task: {problem}"


def import_kernelbench(path: Path, folder: Path, *, device: str = "cpu") -> Task:
    """Write the task folder ``folder/<task id>`` of a KernelBench file, replacing an older one of the same content.

    Runs the file: import only what you would run. Arguments of forward may be tensors and Python numbers, strings,
    booleans and None; the latter are constants of the task and must be the same in every call and workload.

    Args:
        path: the file.
        folder: where the task's folder is made; created if missing.
        device: where the model is run once per workload to see its outputs ("cpu", "cuda", "cuda:1").

    Raises:
        NotKernelBench: the file does not parse, lacks a name, raises, or has inputs, outputs or a constructor that
            cannot be judged; the sentence says which and what is supported.
        RunUnwritable: the folder cannot be written.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotKernelBench(path=path, problem=f"it cannot be read ({error})") from error
    try:
        spec = _describe(path, text, device)
    except Problem as problem:
        raise NotKernelBench(path=path, problem=problem) from problem
    return _write(folder, spec, text)


def _describe(path: Path, text: str, device: str) -> TaskSpec:
    try:
        functions = workload_functions(text)
    except SyntaxError as error:
        raise Problem(f"it does not parse (line {error.lineno}: {error.msg})") from error
    if f"{PREFIX}{DEFAULT_WORKLOAD}" in functions.values():
        raise Problem(f"{PREFIX}{DEFAULT_WORKLOAD} would have the name of the workload that get_inputs draws")
    key = hashlib.sha1(text.encode()).hexdigest()
    module = load_module(path, key)
    init = init_inputs(module)
    draws = {name: stable_draw(module, function) for name, function in functions.items()}
    constants = shared_constants(draws)
    model = stable_model(module, init, constants)
    state = state_of(model)
    if device != "cpu":
        with blaming(f"moving Model to {device}"):
            move_to(model, device)
    workloads = tuple(_workload(name, draw, model, constants, device, key) for name, draw in draws.items())
    with blaming("forward"):
        flags = _flags(module, model, draws[DEFAULT_WORKLOAD], workloads[0], device)
    return TaskSpec(
        task_id=f"{Family.IMPORTED.value}-{key[:10]}",
        family=Family.IMPORTED,
        op_key=key,
        dtype=_main_dtype(workloads),
        weights=tuple(_weight_spec(name, value) for name, value in state.items()),
        workloads=workloads,
        sites=(_site(path, text, state),),
        ops=(),
        output_refs=tuple(spec.name for spec in workloads[0].outputs),
        health=Health(bit_exact=True, flags=flags),
        weight_source=WeightSource(model=path.name, seed=WEIGHT_SEED),
        attention="",
        versions=versions(),
        constructed=True,
        init=tuple(init),
        constants=constants,
    )


def _workload(
    name: str,
    draw: Draw,
    model: torch.nn.Module,
    constants: Mapping[int, Constant],
    device: str,
    key: str,
) -> Workload:
    where = "forward" if name == DEFAULT_WORKLOAD else f"forward on {PREFIX}{name}()"
    before = [tensor.clone() for tensor in draw.tensors]
    with blaming(where), torch.no_grad():
        outputs = flat_outputs(model(*(tensor.to(device) for tensor in draw.tensors)))
    if not same_bits(draw.tensors, before):
        raise Problem(f"{where} changes its inputs in place; a task's inputs must stay as they are")
    if not outputs:
        raise Problem(f"{where} returns nothing")
    for index, output in enumerate(outputs):
        if problem := unsupported(output):
            raise Problem(f"output {index} of {where} is {problem}")
    inputs = input_specs(draw)
    results = tuple(
        tensor_spec(f"output{i}", output.detach(), Law(kind=LawKind.RECORDED), offset=0)
        for i, output in enumerate(outputs)
    )
    layouts = [
        [spec.shape, spec.stride, spec.dtype, spec.storage_offset, spec.alias_group]
        for spec in (*inputs, *results)
    ]
    leading = draw.tensors[0].shape[:-1]
    return Workload(
        id=name,
        phase=Phase.PREFILL,  # the one that is not decoding: a file says nothing of phases, so all are timed
        batch=max(leading[0], 1) if leading else 1,
        rows=max(math.prod(leading), 1),
        cache_len=0,
        inputs=inputs,
        outputs=results,
        calls=1,
        exact_key=hashlib.sha1(json.dumps([key, layouts]).encode()).hexdigest(),
    )


def _flags(
    module: ModuleType, model: torch.nn.Module, draw: Draw, workload: Workload, device: str
) -> tuple[str, ...]:
    """The health flags of the default workload."""
    inputs = [tensor.to(device) for tensor in draw.tensors]
    fresh = [tensor.to(device) for tensor in draw_inputs(module, "get_inputs", INPUT_SEED + 1).tensors]
    with torch.no_grad():
        outputs = flat_outputs(model(*inputs))
    return examine(model, workload, inputs, outputs, fresh)


def _weight_spec(name: str, value: torch.Tensor) -> WeightSpec:
    law = measure_weight(value) if value.dtype.is_floating_point else Law(kind=LawKind.RECORDED)
    return WeightSpec(attribute=name, shape=tuple(value.shape), dtype=dtype_name(value.dtype), law=law)


def _main_dtype(workloads: Sequence[Workload]) -> str:
    """The first floating dtype among outputs, then inputs; the first output's if there is none."""
    specs = (*workloads[0].outputs, *workloads[0].inputs)
    return next((spec.dtype for spec in specs if "float" in spec.dtype), specs[0].dtype)


def _site(path: Path, text: str, state: Mapping[str, torch.Tensor]) -> Site:
    lines = [n.lineno for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    return Site(
        name=path.stem,
        owner="Model",
        source=f"{path.name}:{lines[0] if lines else 1}",
        parameters={name: name for name in state},
    )


def _write(folder: Path, spec: TaskSpec, text: str) -> Task:
    """Write a draft beside the final folder, load it back, and move it into place."""
    final, draft = folder / spec.task_id, folder / f".draft-{spec.task_id}"
    make_folder(folder)
    shutil.rmtree(draft, ignore_errors=True)
    make_folder(draft)
    try:
        write_text(draft / TASK_SOURCE, text)
        hashes = {TASK_SOURCE: file_sha256(draft / TASK_SOURCE)}
        write_json(draft / TASK_SIDECAR, spec.model_copy(update={"file_hashes": hashes}))
        Task.load(draft)
        try:
            if final.exists():
                shutil.rmtree(final)
            draft.rename(final)
        except OSError as error:
            raise unwritable(final, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Task.load(final)

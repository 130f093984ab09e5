"""Import a KernelBench file, a Python file with ``Model``, ``get_inputs`` and ``get_init_inputs``, as a task folder.

The file becomes ``task.py`` unchanged. Its own code goes on drawing the inputs (law ``source``) and, in the
constructor, the weights. ``get_inputs`` is the workload ``default``; every further function ``get_inputs_NAME`` is the
workload ``NAME``. The model is judged in eval mode, as it would be served.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import json
import math
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from extractor.errors import KernelgraftError
from extractor.families import Family
from extractor.keys import dtype_name
from extractor.measure import measure_weight
from extractor.program import construct, flat_outputs, import_program, seeded, state_of
from extractor.run_folder import make_folder, unwritable, write_json, write_text
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

Constant = bool | int | float | str | None

_PREFIX = "get_inputs_"
_MODULE = "kernelgraft_import_"
_NEEDED = ("Model", "get_inputs", "get_init_inputs")
_DTYPES = frozenset(
    {
        torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip


class NotKernelBench(KernelgraftError):
    """A file that cannot be imported as a task."""

    template = "{path} cannot be imported as a KernelBench task: {problem}"


class _Problem(Exception):
    """What is wrong with the file, as half a sentence. Never reaches a user as it is."""


@dataclass(frozen=True)
class _Draw:
    """What one call of a ``get_inputs`` function returned: tensors, and the other arguments by position."""

    tensors: tuple[torch.Tensor, ...]
    names: tuple[str, ...]  # of the tensors, as forward calls its arguments
    constants: dict[int, Constant]


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
    except _Problem as problem:
        raise NotKernelBench(path=path, problem=problem) from problem
    return _write(folder, spec, text)


def workload_functions(text: str) -> dict[str, str]:
    """Workload id -> function name, in the file's order with ``default`` first; only functions of the module itself.

    >>> workload_functions("def get_inputs(): ...\\ndef get_inputs_odd(): ...")
    {'default': 'get_inputs', 'odd': 'get_inputs_odd'}

    Raises:
        SyntaxError: the text does not parse.
    """
    names = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    more = {
        name.removeprefix(_PREFIX): name for name in names if name.startswith(_PREFIX) and name != _PREFIX
    }
    return {DEFAULT_WORKLOAD: "get_inputs"} | more


def _describe(path: Path, text: str, device: str) -> TaskSpec:
    try:
        functions = workload_functions(text)
    except SyntaxError as error:
        raise _Problem(f"it does not parse (line {error.lineno}: {error.msg})") from error
    if f"{_PREFIX}{DEFAULT_WORKLOAD}" in functions.values():
        raise _Problem(
            f"{_PREFIX}{DEFAULT_WORKLOAD} would have the name of the workload that get_inputs draws"
        )
    key = hashlib.sha1(text.encode()).hexdigest()
    with _blaming("running the file"):
        module = import_program(path, f"{_MODULE}{key[:12]}")
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise _Problem(f"it does not define {', '.join(missing)}")
    if not (isinstance(module.Model, type) and issubclass(module.Model, torch.nn.Module)):
        raise _Problem("Model is no subclass of torch.nn.Module")
    init = _init_inputs(module)
    draws = {name: _stable_draw(module, function) for name, function in functions.items()}
    constants = _shared_constants(draws)
    model = _stable_model(module, init, constants)
    state = state_of(model)
    if device != "cpu":
        with _blaming(f"moving Model to {device}"):
            model.to(device)
    workloads = tuple(_workload(name, draw, model, constants, device, key) for name, draw in draws.items())
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
        health=Health(bit_exact=True),
        weight_source=WeightSource(model=path.name, seed=WEIGHT_SEED),
        attention="",
        versions=versions(),
        constructed=True,
        init=tuple(init),
        constants=constants,
    )


@contextlib.contextmanager
def _blaming(doing: str) -> Iterator[None]:
    """Whatever the file's own code raises becomes one sentence that names the error and its line."""
    try:
        yield
    except _Problem:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_globals.get("__name__", "").startswith(_MODULE)]
        where = f" at line {lines[-1]}" if lines else ""
        first = next(iter(str(error).splitlines()), "")
        raise _Problem(
            f"{doing} raised {type(error).__name__}{where}{f': {first}' if first else ''}"
        ) from error


def _init_inputs(module: ModuleType) -> list[Any]:
    with _blaming("get_init_inputs()"):
        values = module.get_init_inputs()
    if not isinstance(values, list | tuple):
        raise _Problem(f"get_init_inputs() returns {type(values).__name__} instead of a list")
    for index, value in enumerate(values):
        if not _is_literal(value):
            raise _Problem(
                f"get_init_inputs()[{index}] is of type {type(value).__name__}; numbers, strings, booleans, None, "
                "and lists, tuples and dicts of them are supported"
            )
    return list(values)


def _is_literal(value: Any) -> bool:
    """Whether JSON can hold the value and give it back (tuples come back as lists)."""
    match value:
        case None | bool() | int() | str():
            return True
        case float():
            return math.isfinite(value)
        case list() | tuple():
            return all(map(_is_literal, value))
        case dict():
            return all(isinstance(key, str) and _is_literal(item) for key, item in value.items())
    return False


def _draw(module: ModuleType, function: str, seed: int) -> _Draw:
    draw: Callable[[], Any] = getattr(module, function)
    with _blaming(f"{function}()"), seeded(seed), torch.no_grad():
        values = draw()
    if not isinstance(values, list | tuple):
        raise _Problem(
            f"{function}() returns {type(values).__name__} instead of a list of forward's arguments"
        )
    tensors: list[torch.Tensor] = []
    constants: dict[int, Constant] = {}
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            if problem := _unsupported(value):
                raise _Problem(f"{function}()[{index}] is {problem}")
            tensors.append(value.detach())
        elif isinstance(value, bool | int | str | None) or (
            isinstance(value, float) and math.isfinite(value)
        ):
            constants[index] = value
        else:
            raise _Problem(
                f"{function}()[{index}] is of type {type(value).__name__}; tensors, and numbers, strings, booleans "
                "and None as constants are supported"
            )
    if not tensors:
        raise _Problem(f"{function}() returns no tensor")
    names = _argument_names(module.Model, len(values))
    return _Draw(tuple(tensors), tuple(n for i, n in enumerate(names) if i not in constants), constants)


def _argument_names(model: type[torch.nn.Module], count: int) -> list[str]:
    """What forward calls its first ``count`` arguments; ``input3`` where it has no name for one."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(model.forward).parameters.values())[1:]
    names = [parameter.name for parameter in parameters if parameter.kind in plain]
    return names[:count] + [f"input{index}" for index in range(len(names), count)]


def _unsupported(tensor: torch.Tensor) -> str:
    """Why a tensor cannot be a task's input or output; empty if it can."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"of the tensor subclass {type(tensor).__name__}; plain tensors are supported"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}; dense tensors are supported"
    if tensor.dtype not in _DTYPES:
        return f"a tensor of dtype {dtype_name(tensor.dtype)}, which is not supported"
    return ""


def _stable_draw(module: ModuleType, function: str) -> _Draw:
    """The recorded inputs, once it is clear that only values differ between seeds, and nothing within one."""
    first, other = _draw(module, function, INPUT_SEED), _draw(module, function, INPUT_SEED + 1)
    if _input_specs(first) != _input_specs(other) or first.constants != other.constants:
        raise _Problem(
            f"{function}() returns other shapes, strides, dtypes or constants on its second call; write one function "
            f"{_PREFIX}NAME for each shape"
        )
    del other
    again = _draw(module, function, INPUT_SEED)
    if not _same(first.tensors, again.tensors):
        raise _Problem(f"{function}() draws values that torch.manual_seed does not fix; draw them with torch")
    return first


def _shared_constants(draws: Mapping[str, _Draw]) -> dict[int, Constant]:
    first = draws[DEFAULT_WORKLOAD]
    for name, draw in draws.items():
        if json.dumps(draw.constants) != json.dumps(first.constants):
            raise _Problem(
                f"workload {name} passes other constants than get_inputs(); give what varies as tensors, or in "
                "get_init_inputs()"
            )
        if len(draw.tensors) != len(first.tensors):
            raise _Problem(
                f"workload {name} has {len(draw.tensors)} tensors, get_inputs() has {len(first.tensors)}"
            )
    return first.constants


def _stable_model(
    module: ModuleType, init: Sequence[Any], constants: Mapping[int, Constant]
) -> torch.nn.Module:
    """The model under the recorded seed, once it is clear that the seed decides its weights."""
    with _blaming("Model(*get_init_inputs())"):
        model = construct(module, init, constants, WEIGHT_SEED)
        again = construct(module, init, constants, WEIGHT_SEED)
    state, other = state_of(model), state_of(again)
    if state.keys() != other.keys() or not _same(list(state.values()), list(other.values())):
        raise _Problem("Model draws weights that torch.manual_seed does not fix; draw them with torch")
    for name, value in state.items():
        if problem := _unsupported(value):
            raise _Problem(f"the weight {name} is {problem}")
    return model


def _workload(
    name: str,
    draw: _Draw,
    model: torch.nn.Module,
    constants: Mapping[int, Constant],
    device: str,
    key: str,
) -> Workload:
    where = "forward" if name == DEFAULT_WORKLOAD else f"forward on {_PREFIX}{name}()"
    before = [tensor.clone() for tensor in draw.tensors]
    with _blaming(where), torch.no_grad():
        outputs = flat_outputs(model(*(tensor.to(device) for tensor in draw.tensors)))
    if not _same(draw.tensors, before):
        raise _Problem(f"{where} changes its inputs in place; a task's inputs must stay as they are")
    if not outputs:
        raise _Problem(f"{where} returns nothing")
    for index, output in enumerate(outputs):
        if problem := _unsupported(output):
            raise _Problem(f"output {index} of {where} is {problem}")
    inputs = _input_specs(draw)
    results = tuple(
        _tensor_spec(f"output{i}", output.detach(), Law(kind=LawKind.RECORDED), offset=0)
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


def _input_specs(draw: _Draw) -> tuple[TensorSpec, ...]:
    storages = [tensor.untyped_storage().data_ptr() if tensor.numel() else None for tensor in draw.tensors]
    shared = dict.fromkeys(s for s in storages if s is not None and storages.count(s) > 1)
    groups: dict[int | None, int] = {storage: index for index, storage in enumerate(shared)}
    law = Law(kind=LawKind.SOURCE)
    return tuple(
        _tensor_spec(name, tensor, law, offset=int(tensor.storage_offset()), group=groups.get(storage))
        for name, tensor, storage in zip(draw.names, draw.tensors, storages, strict=True)
    )


def _tensor_spec(
    name: str, tensor: torch.Tensor, law: Law, *, offset: int, group: int | None = None
) -> TensorSpec:
    return TensorSpec(
        name=name,
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        dtype=dtype_name(tensor.dtype),
        storage_offset=offset,
        alias_group=group,
        law=law,
    )


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


def _same(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Equal bit for bit, so that a NaN equals itself."""
    return all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(_bytes(a), _bytes(b))
        for a, b in zip(left, right, strict=True)
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


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

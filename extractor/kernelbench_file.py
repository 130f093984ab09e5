"""Run the functions of a KernelBench file, and refuse what cannot be judged, each in half a sentence.

What is asked of them: ``get_inputs`` and its like return the same shapes every time and draw their values from random
numbers that a seed fixes, and so does ``Model``'s constructor.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import math
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from extractor.keys import dtype_name
from extractor.program import construct, import_program, seeded, state_of
from extractor.schema import Law, LawKind, TensorSpec
from extractor.task import DEFAULT_WORKLOAD, INPUT_SEED, WEIGHT_SEED

Constant = bool | int | float | str | None

PREFIX = "get_inputs_"
_MODULE = "kernelgraft_import_"
_NEEDED = ("Model", "get_inputs", "get_init_inputs")
_DTYPES = frozenset(
    {
        torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip


class Problem(Exception):
    """What is wrong with the file, as half a sentence. Callers put it into a sentence."""


@dataclass(frozen=True)
class Draw:
    """What one call of a ``get_inputs`` function returned: tensors, and the other arguments by position."""

    tensors: tuple[torch.Tensor, ...]
    names: tuple[str, ...]  # of the tensors, as forward calls its arguments
    constants: dict[int, Constant]


def workload_functions(text: str) -> dict[str, str]:
    """Workload id -> function name, in the file's order with ``default`` first; only functions of the module itself.

    >>> workload_functions("def get_inputs(): ...\\ndef get_inputs_odd(): ...")
    {'default': 'get_inputs', 'odd': 'get_inputs_odd'}

    Raises:
        SyntaxError: the text does not parse.
    """
    names = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    more = {name.removeprefix(PREFIX): name for name in names if name.startswith(PREFIX) and name != PREFIX}
    return {DEFAULT_WORKLOAD: "get_inputs"} | more


def load_module(path: Path, key: str) -> ModuleType:
    """Execute the file. Raises Problem if it raises, or does not define what a KernelBench file does."""
    with blaming("running the file"):
        module = import_program(path, f"{_MODULE}{key[:12]}")
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise Problem(f"it does not define {', '.join(missing)}")
    if not (isinstance(module.Model, type) and issubclass(module.Model, torch.nn.Module)):
        raise Problem("Model is no subclass of torch.nn.Module")
    return module


@contextlib.contextmanager
def blaming(doing: str) -> Iterator[None]:
    """Whatever the file's own code raises becomes one sentence that names the error and its line."""
    try:
        yield
    except Problem:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_globals.get("__name__", "").startswith(_MODULE)]
        where = f" at line {lines[-1]}" if lines else ""
        first = next(iter(str(error).splitlines()), "")
        raise Problem(
            f"{doing} raised {type(error).__name__}{where}{f': {first}' if first else ''}"
        ) from error


def init_inputs(module: ModuleType) -> list[Any]:
    """Arguments of ``Model``. Raises Problem if they are not JSON literals."""
    with blaming("get_init_inputs()"):
        values = module.get_init_inputs()
    if not isinstance(values, list | tuple):
        raise Problem(f"get_init_inputs() returns {type(values).__name__} instead of a list")
    for index, value in enumerate(values):
        if not _is_literal(value):
            raise Problem(
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


def draw_inputs(module: ModuleType, function: str, seed: int) -> Draw:
    """One call of a ``get_inputs`` function under a seed. Raises Problem if forward could not take what it returns."""
    draw: Callable[[], Any] = getattr(module, function)
    with blaming(f"{function}()"), seeded(seed), torch.no_grad():
        values = draw()
    if not isinstance(values, list | tuple):
        raise Problem(
            f"{function}() returns {type(values).__name__} instead of a list of forward's arguments"
        )
    tensors: list[torch.Tensor] = []
    constants: dict[int, Constant] = {}
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            if problem := unsupported(value):
                raise Problem(f"{function}()[{index}] is {problem}")
            tensors.append(value.detach())
        elif isinstance(value, bool | int | str | None) or (
            isinstance(value, float) and math.isfinite(value)
        ):
            constants[index] = value
        else:
            raise Problem(
                f"{function}()[{index}] is of type {type(value).__name__}; tensors, and numbers, strings, booleans "
                "and None as constants are supported"
            )
    if not tensors:
        raise Problem(f"{function}() returns no tensor")
    written_out = sum(
        tensor.numel() * tensor.element_size() for tensor in tensors
    )  # expanded ones are larger than they are
    if written_out > _memory_bytes():
        raise Problem(
            f"{function}() returns tensors of {written_out >> 30} GiB with every element counted, and this machine has "
            f"{_memory_bytes() >> 30} GiB of memory"
        )
    names = _argument_names(module.Model, len(values))
    return Draw(tuple(tensors), tuple(n for i, n in enumerate(names) if i not in constants), constants)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _argument_names(model: type[torch.nn.Module], count: int) -> list[str]:
    """What forward calls its first ``count`` arguments; ``input3`` where it has no name for one."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(model.forward).parameters.values())[1:]
    names = [parameter.name for parameter in parameters if parameter.kind in plain]
    return names[:count] + [f"input{index}" for index in range(len(names), count)]


def unsupported(tensor: torch.Tensor) -> str:
    """Why a tensor cannot be a task's input or output; empty if it can."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"of the tensor subclass {type(tensor).__name__}; plain tensors are supported"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}; dense tensors are supported"
    if tensor.dtype not in _DTYPES:
        return f"a tensor of dtype {dtype_name(tensor.dtype)}, which is not supported"
    return ""


def stable_draw(module: ModuleType, function: str) -> Draw:
    """The recorded inputs, once it is clear that only values differ between seeds, and nothing within one.

    Raises:
        Problem: shapes, strides, dtypes or constants differ between calls, or values under the same seed.
    """
    first, other = draw_inputs(module, function, INPUT_SEED), draw_inputs(module, function, INPUT_SEED + 1)
    if input_specs(first) != input_specs(other) or first.constants != other.constants:
        raise Problem(
            f"{function}() returns other shapes, strides, dtypes or constants on its second call; write one function "
            f"{PREFIX}NAME for each shape"
        )
    del other
    again = draw_inputs(module, function, INPUT_SEED)
    with blaming(f"comparing two calls of {function}()"):
        same = same_bits(first.tensors, again.tensors)
    if not same:
        raise Problem(f"{function}() draws values that torch.manual_seed does not fix; draw them with torch")
    return first


def shared_constants(draws: Mapping[str, Draw]) -> dict[int, Constant]:
    """The constants of all workloads (by workload id). Raises Problem if they differ, or the number of tensors does."""
    first = draws[DEFAULT_WORKLOAD]
    for name, draw in draws.items():
        if json.dumps(draw.constants) != json.dumps(first.constants):
            raise Problem(
                f"workload {name} passes other constants than get_inputs(); give what varies as tensors, or in "
                "get_init_inputs()"
            )
        if len(draw.tensors) != len(first.tensors):
            raise Problem(
                f"workload {name} has {len(draw.tensors)} tensors, get_inputs() has {len(first.tensors)}"
            )
    return first.constants


def stable_model(
    module: ModuleType, init: Sequence[Any], constants: Mapping[int, Constant]
) -> torch.nn.Module:
    """The model under the recorded seed. Raises Problem if the seed does not decide its weights."""
    with blaming("Model(*get_init_inputs())"):
        model = construct(module, init, constants, WEIGHT_SEED)
        again = construct(module, init, constants, WEIGHT_SEED)
    state, other = state_of(model), state_of(again)
    if state.keys() != other.keys() or not same_bits(list(state.values()), list(other.values())):
        raise Problem("Model draws weights that torch.manual_seed does not fix; draw them with torch")
    for name, value in state.items():
        if problem := unsupported(value):
            raise Problem(f"the weight {name} is {problem}")
    return model


def input_specs(draw: Draw) -> tuple[TensorSpec, ...]:
    """The tensors of a draw as specs, with strides, offsets and shared storages as they are."""
    storages = [tensor.untyped_storage().data_ptr() if tensor.numel() else None for tensor in draw.tensors]
    shared = dict.fromkeys(s for s in storages if s is not None and storages.count(s) > 1)
    groups: dict[int | None, int] = {storage: index for index, storage in enumerate(shared)}
    law = Law(kind=LawKind.SOURCE)
    return tuple(
        tensor_spec(name, tensor, law, offset=int(tensor.storage_offset()), group=groups.get(storage))
        for name, tensor, storage in zip(draw.names, draw.tensors, storages, strict=True)
    )


def tensor_spec(
    name: str, tensor: torch.Tensor, law: Law, *, offset: int, group: int | None = None
) -> TensorSpec:
    """A tensor's layout as a spec; ``group`` is the storage it shares with others."""
    return TensorSpec(
        name=name,
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        dtype=dtype_name(tensor.dtype),
        storage_offset=offset,
        alias_group=group,
        law=law,
    )


def same_bits(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Equal bit for bit, so that a NaN equals itself."""
    return all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(_bytes(a), _bytes(b))
        for a, b in zip(left, right, strict=True)
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)

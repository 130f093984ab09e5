"""Run the code of a task file: import it, seed it, give its forward constants, and flatten what it returns.

A task file may draw with torch, Python's ``random`` or numpy; :func:`seeded` fixes all three and puts their states
back, so that the same seed gives the same tensors and nobody else's random numbers change.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_NUMPY_SEEDS = 1 << 32  # numpy's seeds are smaller than this


def import_program(path: Path, name: str) -> ModuleType:
    """Execute a Python file as a module that no import statement finds. Raises whatever the file raises."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not importable")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw by ``seed`` inside; calls that would seed again are ignored there.

    Many files seed inside ``get_inputs``: every trial would then see the same values, and a kernel that remembers
    them would pass.
    """
    import torch

    numpy = sys.modules.get("numpy")  # of no concern to a file that has not imported it
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    with torch.random.fork_rng(devices=[]), contextlib.ExitStack() as silenced:
        if torch.backends.cuda.is_built():
            torch.manual_seed(seed)
        else:  # the same, without writing down who asked for devices that may come later: four times as fast
            torch.default_generator.manual_seed(seed)
        random.seed(seed)
        if numpy is not None:
            numpy.random.seed(seed % _NUMPY_SEEDS)
            silenced.enter_context(_silence(numpy.random, "seed"))
        silenced.enter_context(_silence(torch, "manual_seed"))
        silenced.enter_context(_silence(random, "seed"))
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)


@contextlib.contextmanager
def _silence(owner: Any, name: str) -> Iterator[None]:
    """A function that does nothing in the place of ``owner.name``."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *_, **__: None)
    try:
        yield
    finally:
        setattr(owner, name, original)


def construct(
    module: ModuleType, init: Sequence[Any], constants: Mapping[int, Any], seed: int
) -> torch.nn.Module:
    """``Model(*init)`` under ``seed``, on the CPU, in eval mode and without gradients.

    Args:
        constants: values of forward's arguments that are no tensors, by position; the model that is returned takes
            the tensors only.
    """
    kind = with_constants(module.Model, constants) if constants else module.Model
    with seeded(seed):
        model: torch.nn.Module = kind(*init)
    return model.eval().requires_grad_(False)


def with_constants(kind: type[torch.nn.Module], constants: Mapping[int, Any]) -> type[torch.nn.Module]:
    """A subclass whose forward takes the tensors alone and puts the constants at their positions."""

    def forward(self: torch.nn.Module, *tensors: torch.Tensor) -> Any:
        return kind.forward(self, *merge(tensors, constants))

    return type(kind.__name__, (kind,), {"forward": forward})


def merge(tensors: Sequence[Any], constants: Mapping[int, Any]) -> list[Any]:
    """The argument list of forward.

    >>> merge(["x", "y"], {1: 3.0})
    ['x', 3.0, 'y']
    """
    rest = iter(tensors)
    return [
        constants[position] if position in constants else next(rest)
        for position in range(len(tensors) + len(constants))
    ]


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by dotted name: those that ``state_dict`` leaves out and both names of a tied one too."""
    parameters = {name: value.detach() for name, value in model.named_parameters(remove_duplicate=False)}
    return parameters | dict(model.named_buffers(remove_duplicate=False))


def bind_state(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put tensors in the place of parameters and buffers of those dotted names, without copying them.

    Raises:
        AttributeError: the model has no such module.
        KeyError: the module has neither a parameter nor a buffer of that name.
    """
    import torch

    for name, tensor in tensors.items():
        home, _, leaf = name.rpartition(".")
        owner = model.get_submodule(home)
        if owner._parameters.get(leaf) is not None:
            owner._parameters[leaf] = torch.nn.Parameter(tensor, requires_grad=False)
        elif owner._buffers.get(leaf) is not None:
            owner._buffers[leaf] = tensor
        else:
            raise KeyError(name)


def move_to(model: torch.nn.Module, device: torch.device | str) -> torch.nn.Module:
    """``model.to(device)``, and tensors that modules keep in plain attributes (lists, tuples, dicts of them) as well.

    A constructor may well derive a packed or transposed weight and keep it as an attribute of no special kind.
    """
    model.to(device)
    internal = _internal_attributes()
    for module in model.modules():
        plain = {name: value for name, value in vars(module).items() if name not in internal}
        for name, value in plain.items():
            moved = _moved(value, device)
            if moved is not value:
                setattr(module, name, moved)
    return model


def _internal_attributes() -> frozenset[str]:
    import torch

    return frozenset(vars(torch.nn.Module()))


def _moved(value: Any, device: torch.device | str) -> Any:
    """The value with its tensors moved; itself if it holds none."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.to(device)
    if type(value) in (list, tuple):
        items = [_moved(item, device) for item in value]
        return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if type(value) is dict:
        entries = {key: _moved(item, device) for key, item in value.items()}
        return entries if any(entries[key] is not value[key] for key in entries) else value
    return value


def flat_outputs(result: Any) -> list[torch.Tensor]:
    """What a forward returned as a flat list: tensors of nested tuples and lists in order, numbers as 0-d tensors.

    Python's int becomes int64, float becomes float64, bool stays bool.

    Raises:
        TypeError: something in it is neither a tensor nor a number; the message names its type.
    """
    import torch

    match result:
        case torch.Tensor():
            return [result]
        case tuple() | list():
            return [tensor for item in result for tensor in flat_outputs(item)]
        case bool() | int():
            return [torch.tensor(result)]
        case float():
            return [torch.tensor(result, dtype=torch.float64)]
    raise TypeError(
        f"{type(result).__name__} among the outputs; tensors, numbers, tuples and lists are supported"
    )

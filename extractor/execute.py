"""Run a captured graph node by node: to record values at region boundaries, and to time regions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from extractor.binding import Binding
from extractor.capture import StepGraph
from extractor.regions import Region

# A storage larger than this many times the tensor in it is not stored whole.
_STORAGE_FACTOR = 4


@dataclass(frozen=True)
class Snapshot:
    """A tensor's value with its layout: ``values`` is the flat storage it lives in, copied."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # elements into ``values``
    storage: int  # equal for tensors that shared one storage
    values: torch.Tensor

    def tensor(self) -> torch.Tensor:
        """The tensor as it was; a view of ``values``."""
        return torch.as_strided(self.values, self.shape, self.stride, self.offset)


@dataclass
class Recording:
    """What entered and left one region in one step, in the region's order."""

    inputs: list[Snapshot] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)


def fresh_inputs(step: StepGraph, binding: Binding) -> list[Any]:
    """Arguments for one run of the graph: parameters shared, everything else copied, as the run writes to it."""
    placeholders = [node for node in step.gm.graph.nodes if node.op == "placeholder"]
    return [
        value.clone(memory_format=torch.preserve_format)
        if isinstance(value, torch.Tensor) and node not in binding.weights
        else value
        for node, value in zip(placeholders, step.example_inputs, strict=True)
    ]


def parameter_values(step: StepGraph, binding: Binding) -> dict[str, torch.Tensor]:
    """The parameters and buffers the graph uses, by the model's name for them."""
    placeholders = [node for node in step.gm.graph.nodes if node.op == "placeholder"]
    pairs = zip(placeholders, step.example_inputs, strict=True)
    return {binding.weights[node]: value.detach() for node, value in pairs if node in binding.weights}


@torch.no_grad()
def record(step: StepGraph, binding: Binding, regions: Sequence[Region]) -> list[Recording]:
    """Run the step once and copy the inputs and outputs of ``regions``.

    An input is copied just before the region's first use of it, an output after the region's last node: a legal
    region sees no outside write in between.
    """
    before: dict[fx.Node, list[tuple[int, int, fx.Node]]] = defaultdict(list)
    after: dict[fx.Node, list[int]] = defaultdict(list)
    keep: set[fx.Node] = set()
    slots: list[dict[int, Snapshot]] = [{} for _ in regions]
    shared: list[dict[int, Snapshot]] = [{} for _ in regions]
    recordings = [Recording() for _ in regions]
    for index, region in enumerate(regions):
        for slot, node in enumerate(region.inputs):
            first = next(member for member in region.nodes if node in member.all_input_nodes)
            before[first].append((index, slot, node))
        after[region.nodes[-1]].append(index)
        # Inputs stay alive to the end: freed memory, used again, would look like a storage they share.
        keep.update(region.inputs, region.outputs)

    environment: dict[fx.Node, Any] = {}

    def entering(node: fx.Node) -> None:
        for index, slot, operand in before.get(node, ()):
            slots[index][slot] = _snapshot(environment[operand], shared[index])

    def leaving(node: fx.Node) -> None:
        for index in after.get(node, ()):
            recordings[index].outputs = [
                environment[output].clone(memory_format=torch.preserve_format)
                for output in regions[index].outputs
            ]

    _interpret(step.gm, fresh_inputs(step, binding), environment, keep, entering, leaving)
    for index, recording in enumerate(recordings):
        recording.inputs = [slots[index][slot] for slot in range(len(regions[index].inputs))]
    return recordings


def _interpret(
    gm: fx.GraphModule,
    arguments: Sequence[Any],
    environment: dict[fx.Node, Any],
    keep: set[fx.Node],
    entering: Callable[[fx.Node], None],
    leaving: Callable[[fx.Node], None],
) -> None:
    nodes = list(gm.graph.nodes)
    last_use: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        for operand in node.all_input_nodes:
            last_use[operand] = node
    dying: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    for operand, node in last_use.items():
        if operand not in keep:
            dying[node].append(operand)
    given = iter(arguments)
    for node in nodes:
        if node.op == "output":
            return
        entering(node)
        environment[node] = _run(gm, node, environment, given)
        leaving(node)
        for operand in dying[node]:
            del environment[operand]


def _run(gm: fx.GraphModule, node: fx.Node, environment: dict[fx.Node, Any], given: Any) -> Any:
    if node.op == "placeholder":
        return next(given)
    if node.op == "get_attr":
        value: Any = gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value
    arguments = fx.map_arg(node.args, environment.__getitem__)
    keywords = fx.map_arg(node.kwargs, environment.__getitem__)
    if node.op == "call_method":
        return getattr(arguments[0], str(node.target))(*arguments[1:], **keywords)
    if node.op == "call_module":
        return gm.get_submodule(str(node.target))(*arguments, **keywords)
    return node.target(*arguments, **keywords)  # type: ignore[operator]


def _snapshot(tensor: torch.Tensor, shared: dict[int, Snapshot]) -> Snapshot:
    storage = tensor.untyped_storage()
    key = storage.data_ptr()
    shape, stride, offset = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
    known = shared.get(key)
    if known is not None and known.values.dtype == tensor.dtype and offset < known.values.numel():
        return Snapshot(shape, stride, offset, key, known.values)
    total = storage.nbytes() // tensor.element_size()
    span = (
        1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if tensor.numel() else 0
    )
    if total <= max(_STORAGE_FACTOR * tensor.numel(), 4096):
        values = (
            torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (total,), (1,)).clone()
        )
        made = Snapshot(shape, stride, offset, key, values)
        shared[key] = made
        return made
    values = torch.as_strided(tensor, (span,), (1,), offset).clone()
    return Snapshot(shape, stride, 0, id(values), values)

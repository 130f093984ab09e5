"""Tie a captured graph to the model it came from, by object identity and never by parsing names.

Name strings inside Dynamo graphs change between releases (``L['self']``, ``L['args'][0]``); the objects do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn


@dataclass(frozen=True)
class Binding:
    """What the nodes of one graph are in the model.

    ``weights``: placeholder -> name of the parameter or buffer it is.
    ``states``: the remaining tensor placeholders: token ids, caches, positions.
    ``paths``: node -> dotted path of the innermost module it was traced in.
    ``classes``: module path -> class name.
    """

    weights: dict[fx.Node, str]
    states: tuple[fx.Node, ...]
    paths: dict[fx.Node, str]
    classes: dict[str, str]


def bind(model: nn.Module, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Binding:
    """Bind ``gm``, as a torch.compile backend receives it, to ``model``.

    A tied weight gets the first name ``named_parameters`` gives it.
    """
    tensors = {id(tensor): name for name, tensor in reversed([*_named_tensors(model)])}
    modules = {id(module): name for name, module in model.named_modules()}
    classes = {name: type(module).__name__ for name, module in model.named_modules()}
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    weights: dict[fx.Node, str] = {}
    states: list[fx.Node] = []
    for node, value in zip(placeholders, example_inputs, strict=True):
        name = tensors.get(id(value))
        if name is not None:
            weights[node] = name
        elif isinstance(value, torch.Tensor):
            states.append(node)
    paths = {node: _path(node, modules) for node in gm.graph.nodes}
    return Binding(weights=weights, states=tuple(states), paths=paths, classes=classes)


def _named_tensors(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _path(node: fx.Node, modules: dict[int, str]) -> str:
    """Innermost module of the node that belongs to this model; keys of the stack are ``id(module)`` as text."""
    stack = node.meta.get("nn_module_stack") or {}
    for key in reversed(stack):
        name = modules.get(int(key)) if str(key).isdigit() else None
        if name is not None:
            return name
    return ""

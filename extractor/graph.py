"""What a captured graph says about itself: order, names, aliases, in-place effects and barriers.

Nodes are never re-sorted: a cache read does not depend on the cache write before it in the graph's edges, only
in its order. Everything here therefore works with positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

# Results that may share storage with their first argument.
_ALIASING = frozenset(
    {
        "getitem",
        "view",
        "reshape",
        "expand",
        "expand_as",
        "view_as",
        "transpose",
        "permute",
        "unsqueeze",
        "squeeze",
        "flatten",
        "unflatten",
        "to",
        "float",
        "type",
        "type_as",
        "half",
        "bfloat16",
        "double",
        "contiguous",
        "chunk",
        "split",
        "unbind",
        "narrow",
        "select",
        "detach",
        "dropout",
        "t",
        "movedim",
        "swapaxes",
        "as_strided",
        "diagonal",
        "real",
        "imag",
        "view_as_complex",
        "view_as_real",
        "broadcast_to",
        "tensor_split",
    }
)
# Operators written without the trailing underscore that change their first argument all the same.
_INPLACE_OPERATORS = frozenset(
    {
        "setitem",
        "iadd",
        "isub",
        "imul",
        "itruediv",
        "ifloordiv",
        "imod",
        "ipow",
        "iand",
        "ior",
        "ixor",
        "imatmul",
    }
)
# Functions whose positional `inplace` flag would be True.
_INPLACE_FLAGGED = frozenset(
    {
        "relu",
        "relu6",
        "silu",
        "dropout",
        "hardtanh",
        "leaky_relu",
        "elu",
        "mish",
        "hardswish",
        "selu",
        "celu",
    }
)
# State changes that a region must not be moved across.
_BARRIERS = frozenset(
    {
        "_enter_autocast",
        "_exit_autocast",
        "_set_grad_enabled",
        "_enter_inference_mode",
        "_exit_inference_mode",
    }
)


@dataclass(frozen=True)
class StepDims:
    """The sizes that vary between steps: ``batch`` sequences, ``query`` new tokens each, ``cache_len`` slots."""

    batch: int
    query: int
    cache_len: int

    @property
    def rows(self) -> int:
        """M: batch times query length."""
        return self.batch * self.query


def op_name(node: fx.Node) -> str:
    """The bare function or method name: ``linear``, ``mul``, ``getitem``, ``index_copy_``."""
    if isinstance(node.target, str):
        return node.target
    return str(getattr(node.target, "__name__", node.target))


def result(node: fx.Node) -> Any:
    """The example value Dynamo recorded for the node, or ``None``."""
    return node.meta.get("example_value")


def is_tensor(node: fx.Node) -> bool:
    """Whether the node's result is one tensor (not a tuple, a number or nothing)."""
    return isinstance(result(node), torch.Tensor)


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """Shape of a tensor node; ``()`` for anything else."""
    value = result(node)
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def is_inplace(node: fx.Node) -> bool:
    """Whether executing the node changes its first argument."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = op_name(node)
    if name in _INPLACE_OPERATORS or node.kwargs.get("inplace") is True or node.kwargs.get("out") is not None:
        return True
    if name in _INPLACE_FLAGGED and len(node.args) > 1 and node.args[-1] is True:
        return True
    return name.endswith("_") and not name.startswith("_") and not name.endswith("__")


def source_line(node: fx.Node) -> str:
    """``modeling_qwen3.py:81`` of the innermost frame, or an empty string."""
    trace = node.stack_trace or ""
    for line in reversed(trace.splitlines()):
        line = line.strip()
        if line.startswith('File "'):
            path, _, rest = line[6:].partition('"')
            number = rest.partition("line ")[2].partition(",")[0]
            return f"{path.replace(chr(92), '/').rpartition('/')[2]}:{number}"
    return ""


def source_text(node: fx.Node) -> str:
    """The source line itself as Dynamo quotes it, or an empty string."""
    lines = [line.strip() for line in (node.stack_trace or "").splitlines()]
    lines = [line for line in lines if line.strip("^~ ")]  # without the markers under the expression
    return lines[-1] if lines and not lines[-1].startswith("File ") else ""


@dataclass
class GraphView:
    """An indexed, read-only look at one graph. ``paths`` gives each node's innermost module path."""

    graph: fx.Graph
    paths: dict[fx.Node, str]
    nodes: list[fx.Node] = field(init=False)
    position: dict[fx.Node, int] = field(init=False)
    root: dict[fx.Node, fx.Node] = field(init=False)  # the node whose storage this node may share
    mutations: list[tuple[int, fx.Node]] = field(init=False)  # (position, root whose storage changes)
    barriers: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = list(self.graph.nodes)
        self.position = {node: index for index, node in enumerate(self.nodes)}
        self.root, self.mutations, self.barriers = {}, [], []
        for index, node in enumerate(self.nodes):
            first = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
            self.root[node] = node
            if first is not None and (is_inplace(node) or self._aliases(node)):
                self.root[node] = self.root[first]
            if is_inplace(node) and first is not None:
                self.mutations.append((index, self.root[first]))
            if op_name(node) in _BARRIERS:
                self.barriers.append(index)

    @staticmethod
    def _aliases(node: fx.Node) -> bool:
        name = op_name(node)
        if name != "getitem":
            return name in _ALIASING
        index = node.args[1]
        # Indexing with a tensor copies; with numbers, slices and None it is a view.
        parts = index if isinstance(index, tuple) else (index,)
        return not any(isinstance(part, fx.Node | list) for part in parts)

    def calls(self) -> Iterator[fx.Node]:
        """The nodes that compute, in order."""
        for node in self.nodes:
            if node.op in ("call_function", "call_method"):
                yield node

    def named(self, *names: str) -> list[fx.Node]:
        """The computing nodes with one of these op names, in order."""
        wanted = set(names)
        return [node for node in self.calls() if op_name(node) in wanted]

    def path(self, node: fx.Node) -> str:
        """Path of the innermost module the node was traced in, ``""`` for the model itself."""
        return self.paths.get(node, "")

    def in_order(self, nodes: set[fx.Node]) -> list[fx.Node]:
        """``nodes`` in graph order."""
        return sorted(nodes, key=self.position.__getitem__)


def parent(path: str) -> str:
    """``a.b.c`` -> ``a.b``; ``a`` -> ``""``."""
    return path.rpartition(".")[0]


def common_ancestor(paths: list[str]) -> str:
    """The longest module path that contains all of ``paths``.

    >>> common_ancestor(["model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"])
    'model.layers.0.mlp'
    """
    if not paths:
        return ""
    split = [path.split(".") for path in paths]
    shared: list[str] = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) != 1:
            break
        shared.append(parts[0])
    return ".".join(shared)

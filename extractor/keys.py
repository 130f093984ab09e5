"""Identity of operators: ``op_key`` for the structure, ``exact_key`` for one shape set of it.

``op_key`` must come out equal for the same operator at another batch, prompt or cache length, because the
integrator meets graphs of other lengths than the extractor recorded. Sizes of activations are therefore never
hashed as they are, not even by dropping those equal to the batch (a head count may equal it): what counts are
weight shapes, constants, and *traits*, sizes from which batch and length have been divided out by the role of
the axis.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import fx

from extractor.families import Family
from extractor.graph import StepDims, op_name, result, shape_of
from extractor.regions import Region

# Operators whose integer arguments are sizes; their values depend on the batch and the length.
SHAPE_OPS = frozenset(
    {
        "view",
        "reshape",
        "expand",
        "repeat",
        "broadcast_to",
        "tile",
        "new_zeros",
        "new_ones",
        "new_empty",
        "new_full",
        "zeros",
        "ones",
        "empty",
        "full",
        "unflatten",
    }
)
# Families whose activations are described by their weights alone.
_NO_TRAITS = frozenset(
    {
        Family.FFN_DOWN,
        Family.FFN_GATE_UP,
        Family.SHARED_GATE_UP,
        Family.ATTENTION_QKV,
        Family.ATTENTION_OUTPUT,
        Family.GDN_INPUT,
        Family.LM_HEAD,
        Family.LINEAR,
        Family.MLA_PROJECTION,
        Family.ROUTED_GATE_UP,
        Family.ROUTED_DOWN,
        Family.ROUTER,
    }
)


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.bfloat16`` -> ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


def op_key(region: Region, dims: StepDims) -> str:
    """sha1 over family, operators, constants, weight shapes and traits."""
    return _digest([region.family.value, *structure(region), _traits(region, dims)])


def exact_key(region: Region, key: str) -> str:
    """sha1 over ``key`` and the exact shapes, strides and dtypes of inputs and outputs."""
    return _digest([key, [_layout(node) for node in (*region.inputs, *region.outputs)]])


def structure(region: Region) -> list[Any]:
    """The region's program with values numbered, as plain lists: equal for equal operators."""
    names: dict[fx.Node, str] = {}
    for index, node in enumerate(region.inputs):
        names[node] = f"i{index}"
    for index, node in enumerate(region.weights.values()):
        names[node] = f"w{index}"
    for index, node in enumerate(region.nodes):
        names[node] = f"n{index}"
    program = []
    for node in region.nodes:
        arguments = _canonical(node.args, names, node)
        keywords = {key: _canonical(value, names, node) for key, value in sorted(node.kwargs.items())}
        program.append([op_name(node), arguments, keywords])
    inputs = [[dtype_name(result(n).dtype), result(n).ndim] for n in region.inputs]
    weights = [[list(shape_of(n)), dtype_name(result(n).dtype)] for n in region.weights.values()]
    return [program, inputs, weights, [names[node] for node in region.outputs]]


def _canonical(value: Any, names: dict[fx.Node, str], node: fx.Node) -> Any:
    match value:
        case fx.Node():
            return {"ref": names[value]}
        case tuple() | list():
            return [_canonical(item, names, node) for item in value]
        case dict():
            return {str(key): _canonical(item, names, node) for key, item in value.items()}
        case bool() | None | str():
            return value
        case int():
            return "size" if op_name(node) in SHAPE_OPS else value
        case float():
            return repr(value)
        case slice():
            return [
                "slice",
                *(_canonical(part, names, node) for part in (value.start, value.stop, value.step)),
            ]
        case torch.device():
            return "device"
        case _:
            return str(value)


def _traits(region: Region, dims: StepDims) -> list[list[int]]:
    """Per input, its sizes that depend neither on the batch nor on any length."""
    if region.family in _NO_TRAITS:
        return []
    return [_trait(region.roles.get(node, ""), shape_of(node), dims) for node in region.inputs]


def _trait(role: str, shape: tuple[int, ...], dims: StepDims) -> list[int]:
    match role:
        case "mask" | "ids" | "offsets":
            return []
        case "cos" | "sin":
            return [shape[-1]]
        case "key" | "value":  # [batch, heads, length, head size]
            return [shape[1], shape[-1]]
        case "state":  # [batch, ...]
            return list(shape[1:])
        case "channels":  # [batch, channels, length]
            return [shape[1]]
    count = 1
    for size in shape:
        count *= size
    return [count // dims.rows] if count % dims.rows == 0 else [count]


def _layout(node: fx.Node) -> list[Any]:
    value = result(node)
    return [list(value.shape), list(value.stride()), dtype_name(value.dtype)]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha1(text.encode()).hexdigest()

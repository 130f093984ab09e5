"""``elementwise``: maximal legal regions of pointwise arithmetic that no other detector claimed."""

from __future__ import annotations

from torch import fx

from extractor.detectors.context import Context, is_floating
from extractor.detectors.gdn import gdn_paths
from extractor.families import Family
from extractor.graph import is_inplace, op_name, result

_POINTWISE = frozenset(
    {
        "add",
        "sub",
        "mul",
        "truediv",
        "div",
        "neg",
        "exp",
        "tanh",
        "sigmoid",
        "silu",
        "gelu",
        "relu",
        "clamp",
        "pow",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "abs",
        "where",
        "masked_fill",
        "softplus",
        "log",
        "square",
        "maximum",
        "minimum",
    }
)
_GLUE = frozenset(["to", "float", "type", "type_as", "unsqueeze", "getitem", "chunk"])
_MIN_POINTWISE = 2  # one operation alone is one kernel already
_MIN_FEATURES = 16  # elements a row; below that only the launch would be saved


def detect_elementwise(context: Context) -> None:
    """Claim connected pointwise nodes of one module, at least two of them computing."""
    excluded = context.tables | _feeding(context.masks)
    recurrent = gdn_paths(context)  # pieces of a recurrence that was not claimed whole help nobody
    free = [
        node
        for node in context.view.calls()
        if node not in context.claimed
        and node not in excluded
        and context.view.path(node) not in recurrent
        and not is_inplace(node)
        and op_name(node) in _POINTWISE | _GLUE
        and (is_floating(node) or op_name(node) == "chunk")
    ]
    for members in _connected(context, free):
        members = _trim(members)
        pointwise = [node for node in members if op_name(node) in _POINTWISE]
        if len(pointwise) < _MIN_POINTWISE or _features(context, pointwise) < _MIN_FEATURES:
            continue
        context.claim(Family.ELEMENTWISE, members, focus=context.view.in_order(members)[-1])


def _connected(context: Context, free: list[fx.Node]) -> list[set[fx.Node]]:
    home: dict[fx.Node, set[fx.Node]] = {node: {node} for node in free}
    for node in free:
        for operand in node.all_input_nodes:
            joined = home.get(operand)
            if (
                joined is None
                or joined is home[node]
                or context.view.path(operand) != context.view.path(node)
            ):
                continue
            merged = joined | home[node]
            for member in merged:
                home[member] = merged
    return list({id(group): group for group in home.values()}.values())


def _trim(members: set[fx.Node]) -> set[fx.Node]:
    """Drop views and casts at the edges: they cost nothing, and would only blur what enters."""
    members = set(members)
    while True:
        edge = {
            node
            for node in members
            if op_name(node) in _GLUE
            and (
                not any(operand in members for operand in node.all_input_nodes)
                or not any(user in members for user in node.users)
            )
            and op_name(node) not in ("to", "float", "type", "type_as")
        }
        if not edge:
            return members
        members -= edge


def _features(context: Context, nodes: list[fx.Node]) -> int:
    return max(result(node).numel() for node in nodes) // context.dims.rows


def _feeding(nodes: set[fx.Node]) -> set[fx.Node]:
    """``nodes`` and everything they are computed from."""
    found, pending = set(nodes), list(nodes)
    while pending:
        for operand in pending.pop().all_input_nodes:
            if operand not in found:
                found.add(operand)
                pending.append(operand)
    return found

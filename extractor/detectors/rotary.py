"""``qk_norm_rope``: the closure of what consumes the rotary cos/sin tables, back to the projections.

Tables start at ``cos`` and ``sin`` calls. A consumer multiplies something with them; from there the region grows
forward through rotation arithmetic and back through norms, slices and views, until a projection, a cache or a
value that others need too. Full, partial and interleaved rotary, with or without norms, all fall out of this.
"""

from __future__ import annotations

from collections import defaultdict

from torch import fx

from extractor.detectors.context import CASTS, Context
from extractor.detectors.norms import Norm
from extractor.families import Family
from extractor.graph import is_inplace, is_tensor, op_name

_TABLE_OPS = CASTS | frozenset(
    {
        "cos",
        "sin",
        "mul",
        "add",
        "cat",
        "getitem",
        "unsqueeze",
        "squeeze",
        "expand",
        "view",
        "reshape",
        "repeat_interleave",
        "stack",
        "flatten",
        "transpose",
        "contiguous",
        "chunk",
        "split",
    }
)
_FORWARD_OPS = CASTS | frozenset(["add", "sub", "neg", "cat", "stack", "flatten"])
_BACKWARD_OPS = CASTS | frozenset(
    {
        "getitem",
        "view",
        "reshape",
        "transpose",
        "permute",
        "unsqueeze",
        "squeeze",
        "neg",
        "cat",
        "chunk",
        "split",
        "contiguous",
        "unflatten",
    }
)


def find_tables(context: Context) -> None:
    """Fill ``context.tables`` with the cos/sin nodes and everything computed from them alone."""
    tables = context.tables
    for node in context.view.calls():
        if op_name(node) in ("cos", "sin"):
            tables.add(node)
            continue
        operands = [operand for operand in node.all_input_nodes if not context.is_weight(operand)]
        if operands and op_name(node) in _TABLE_OPS and all(operand in tables for operand in operands):
            tables.add(node)


def detect_rotary(context: Context, norms: list[Norm]) -> None:
    """Claim one ``qk_norm_rope`` region a module that consumes the tables."""
    seeds: dict[str, set[fx.Node]] = defaultdict(set)
    for node in context.view.named("mul"):
        if node not in context.tables and any(operand in context.tables for operand in node.all_input_nodes):
            seeds[context.view.path(node)].add(node)
    norm_of = {node: norm for norm in norms if norm.gate is None for node in norm.members}
    for path, group in seeds.items():
        forward = _forward(context, group, path)
        members = _backward(context, forward, path, norm_of)
        members = _prune(members, forward, norm_of)
        focus = min(group, key=context.view.position.__getitem__)
        context.claim(Family.QK_NORM_ROPE, members, focus=focus, roles=_roles(context, members))


def _forward(context: Context, seeds: set[fx.Node], path: str) -> set[fx.Node]:
    found = set(seeds)
    pending = list(seeds)
    while pending:
        for user in pending.pop().users:
            if user in found or op_name(user) not in _FORWARD_OPS or context.view.path(user) != path:
                continue
            # A cat takes the unrotated rest along; sums must be of rotation products only.
            joins = op_name(user) in ("cat", "stack")
            if not joins and not all(operand in found for operand in user.all_input_nodes):
                continue
            found.add(user)
            pending.append(user)
    return found


def _backward(
    context: Context, forward: set[fx.Node], path: str, norm_of: dict[fx.Node, Norm]
) -> set[fx.Node]:
    found = set(forward)
    pending = list(forward)
    while pending:
        for operand in pending.pop().all_input_nodes:
            if operand in found or context.is_weight(operand) or operand in context.claimed:
                continue
            if is_inplace(operand) or not context.view.path(operand).startswith(path):
                continue
            norm = norm_of.get(operand)
            if norm is not None:
                found |= norm.members
                pending += norm.members
            elif operand in context.tables or op_name(operand) in _BACKWARD_OPS:
                found.add(operand)
                pending.append(operand)
    return found


def _prune(members: set[fx.Node], forward: set[fx.Node], norm_of: dict[fx.Node, Norm]) -> set[fx.Node]:
    """Give back, one by one, nodes before the rotation that others use as well; they become inputs."""
    members = set(members)
    while True:
        leaking = {
            node
            for node in members - forward
            if any(user not in members for user in node.users)
            or not node.users
            or any(not is_tensor(operand) and operand not in members for operand in node.all_input_nodes)
        }
        if not leaking:
            return members
        for node in leaking:
            members -= norm_of[node].members if node in norm_of else {node}


def _roles(context: Context, members: set[fx.Node]) -> dict[fx.Node, str]:
    """Which inputs are the tables; whether one is cos or sin is decided by the call it derives from."""
    roles: dict[fx.Node, str] = {}
    for node in members:
        for operand in node.all_input_nodes:
            if operand not in members and operand in context.tables and is_tensor(operand):
                roles[operand] = _table_kind(operand)
    return roles


def _table_kind(node: fx.Node) -> str:
    while op_name(node) not in ("cos", "sin"):
        node = node.all_input_nodes[0]
    return op_name(node)

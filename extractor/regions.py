"""A region: the nodes of one operator occurrence, and the proof that they may be replaced by one call.

A region is legal if it is convex, all its inputs precede all its users, nothing else writes to storage it reads
or returns while it is under way, no change of interpreter state falls inside, and it changes nothing that is
visible outside. Writes to a tensor that the region itself allocates are invisible, and allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import fx

from extractor.binding import Binding
from extractor.families import Family
from extractor.graph import (
    GraphView,
    common_ancestor,
    is_inplace,
    is_tensor,
    op_name,
    parent,
    source_line,
)


class Illegal(Exception):
    """A set of nodes that cannot be replaced by one call; the text says why. Never reaches a user."""


@dataclass(frozen=True)
class Region:
    """One legal operator occurrence.

    ``inputs``, ``weights`` and ``outputs`` are in order of first use, which is the order of the task's inputs,
    weights and outputs and of the arrays a native candidate receives. ``weights`` maps the attribute name in the
    task's ``Model`` to the placeholder; ``parameters`` maps it to the model's parameter name. ``anchor`` is a
    node of the region: one call inserted right before it sees all inputs and precedes all users.
    """

    family: Family
    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    weights: dict[str, fx.Node]
    parameters: dict[str, str]
    anchor: fx.Node
    site: str
    owner: str
    source: str
    roles: dict[fx.Node, str] = field(default_factory=dict)
    op_key: str = ""
    exact_key: str = ""


def build_region(
    family: Family,
    members: set[fx.Node],
    view: GraphView,
    binding: Binding,
    *,
    focus: fx.Node | None = None,
    roles: Mapping[fx.Node, str] | None = None,
) -> Region:
    """Check ``members`` and make them a region. ``focus`` is the node the site is named after.

    Raises:
        Illegal: they may not be replaced by one call.
    """
    nodes = view.in_order(members)
    inputs, weights = _operands(nodes, members, binding)
    outputs = [node for node in nodes if any(user not in members for user in node.users)]
    if not outputs:
        raise Illegal("nothing uses it")
    for output in outputs:
        if not is_tensor(output):
            raise Illegal(f"{output.name} is returned and is not a tensor")
    for node in inputs:
        if not is_tensor(node):
            raise Illegal(f"{node.name} enters and is not a tensor")
    _check_effects(nodes, members, inputs, outputs, view)
    anchor = _find_anchor(nodes, inputs, outputs, members, view)
    _check_hazards(nodes, members, [*inputs, *weights], outputs, anchor, view)
    named, parameters = _name_weights(weights, members, view, binding)
    paths = [view.path(node) for node in nodes]
    ancestor = common_ancestor(paths)
    site = view.path(focus) if focus is not None else ancestor
    return Region(
        family=family,
        nodes=tuple(nodes),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        weights=named,
        parameters=parameters,
        anchor=anchor,
        site=site or ancestor or "model",
        owner=_owner(ancestor, nodes, binding),
        source=next((line for line in map(source_line, nodes) if line), ""),
        roles=dict(roles or {}),
    )


def _operands(
    nodes: list[fx.Node], members: set[fx.Node], binding: Binding
) -> tuple[list[fx.Node], list[fx.Node]]:
    inputs: dict[fx.Node, None] = {}
    weights: dict[fx.Node, None] = {}
    for node in nodes:
        for operand in node.all_input_nodes:
            if operand in members:
                continue
            if operand.op == "get_attr":
                raise Illegal(f"{operand.name} is a constant of the graph")
            (weights if operand in binding.weights else inputs)[operand] = None
    return list(inputs), list(weights)


def _check_effects(
    nodes: list[fx.Node],
    members: set[fx.Node],
    inputs: list[fx.Node],
    outputs: list[fx.Node],
    view: GraphView,
) -> None:
    for node in nodes:
        if is_inplace(node) and view.root[node] not in members:
            raise Illegal(f"{op_name(node)} inside changes a tensor that is visible outside")
    roots = {view.root[node] for node in inputs}
    first = view.position[nodes[0]]
    for output in outputs:
        root = view.root[output]
        if root in roots and any(where > first and which is root for where, which in view.mutations):
            raise Illegal(f"{output.name} may alias an input that is changed later")


def _find_anchor(
    nodes: list[fx.Node],
    inputs: list[fx.Node],
    outputs: list[fx.Node],
    members: set[fx.Node],
    view: GraphView,
) -> fx.Node:
    """A member after every input and not after any outside user. Its existence implies convexity."""
    position = view.position
    last_input = max((position[node] for node in inputs), default=-1)
    first_user = min(position[user] for output in outputs for user in output.users if user not in members)
    if last_input >= first_user:
        raise Illegal("an input comes after a user of an output")
    if position[nodes[-1]] < first_user:
        return nodes[-1]
    for node in nodes:
        if last_input < position[node] < first_user:
            return node
    raise Illegal("no place between its inputs and its users")


def _check_hazards(
    nodes: list[fx.Node],
    members: set[fx.Node],
    operands: list[fx.Node],
    outputs: list[fx.Node],
    anchor: fx.Node,
    view: GraphView,
) -> None:
    """No outside write to what the region reads, and no barrier, between its first and its last node."""
    position = view.position
    low, high = position[nodes[0]], position[nodes[-1]]
    if any(low < barrier < high for barrier in view.barriers):
        raise Illegal("interpreter state changes inside")
    touched = {view.root[node] for node in [*operands, *nodes]}
    for where, root in view.mutations:
        if low <= where <= high and root in touched and view.nodes[where] not in members:
            raise Illegal(f"{op_name(view.nodes[where])} outside changes {root.name} while it is under way")


def _name_weights(
    weights: list[fx.Node], members: set[fx.Node], view: GraphView, binding: Binding
) -> tuple[dict[str, fx.Node], dict[str, str]]:
    """Attribute names as in the source module: relative to the innermost module that holds all weights."""
    full: list[str] = []
    for weight in weights:
        name = binding.weights[weight]
        user = next(user for user in weight.users if user in members)
        module, leaf = view.path(user), name.rpartition(".")[2]
        # A tied weight carries the name of the other module; what counts here is where it is used.
        shared = parent(name) in binding.classes and module.startswith(parent(name))
        full.append(name if shared or not module else f"{module}.{leaf}")
    owners = [parent(name) for name in full]
    base = parent(owners[0]) if len(set(owners)) == 1 else common_ancestor(owners)
    named: dict[str, fx.Node] = {}
    parameters: dict[str, str] = {}
    for weight, name in zip(weights, full, strict=True):
        attribute = name.removeprefix(f"{base}.") if base else name
        while attribute in named:
            attribute += "_"
        named[attribute] = weight
        parameters[attribute] = binding.weights[weight]
    return named, parameters


def _owner(ancestor: str, nodes: list[fx.Node], binding: Binding) -> str:
    """Class of the module that holds the region; a bare leaf (``Linear``) is named after its parent."""
    name = binding.classes.get(ancestor, "")
    while name in ("ModuleList", "ModuleDict", "Sequential"):
        ancestor = parent(ancestor)
        name = binding.classes.get(ancestor, "")
    if len(nodes) == 1 and ancestor:
        name = binding.classes.get(parent(ancestor), name)
    return name or "Model"

"""Root-mean-square norms: found by ``mean`` feeding ``rsqrt``, or a fused ``rms_norm`` call.

A norm with an ``add`` of two activations in front is ``residual_rmsnorm`` (its sum is a second output when the
residual stream goes on); one multiplied by an activation of a second tensor is ``gdn_norm_gate``; one inside a
rotary closure belongs to ``qk_norm_rope``, which therefore runs before.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from extractor.detectors.context import CASTS, Context, is_floating, only_user
from extractor.families import Family
from extractor.graph import op_name, shape_of

_ACTIVATIONS = ("silu", "sigmoid", "gelu")


@dataclass(frozen=True)
class Norm:
    """The nodes of one norm; ``source`` is the tensor it normalises, ``output`` the result."""

    members: frozenset[fx.Node]
    source: fx.Node
    output: fx.Node
    core: fx.Node  # the rsqrt or rms_norm node
    gate: fx.Node | None = None


def find_norms(context: Context) -> list[Norm]:
    """All norms of the graph, in order."""
    found = []
    for node in context.view.named("rsqrt", "rms_norm"):
        norm = _fused(context, node) if op_name(node) == "rms_norm" else _written_out(context, node)
        if norm is not None:
            found.append(norm)
    return found


def detect_gated_norms(context: Context, norms: list[Norm]) -> None:
    """``gdn_norm_gate``: norms multiplied by an activation of another tensor."""
    for norm in norms:
        if norm.gate is not None:
            roles = {norm.source: "x", norm.gate: "gate"}
            context.claim(Family.GDN_NORM_GATE, set(norm.members), focus=norm.core, roles=roles)


def detect_norms(context: Context, norms: list[Norm]) -> None:
    """``residual_rmsnorm`` where an add feeds the norm, else ``rmsnorm``."""
    for norm in norms:
        if any(node in context.claimed for node in norm.members):
            continue
        addition = _residual_add(context, norm)
        if addition is not None:
            members = set(norm.members) | {addition}
            roles = dict(zip(addition.all_input_nodes, ("residual", "x"), strict=True))
            if context.claim(Family.RESIDUAL_RMSNORM, members, focus=norm.core, roles=roles) is not None:
                continue
        context.claim(Family.RMSNORM, set(norm.members), focus=norm.core, roles={norm.source: "x"})


def _residual_add(context: Context, norm: Norm) -> fx.Node | None:
    node = norm.source
    if op_name(node) != "add" or node in context.claimed or len(node.all_input_nodes) != 2:
        return None
    left, right = node.all_input_nodes
    if not (is_floating(left) and is_floating(right)) or shape_of(left) != shape_of(right):
        return None
    return None if context.is_weight(left) or context.is_weight(right) else node


def _fused(context: Context, node: fx.Node) -> Norm | None:
    source = node.args[0]
    if not isinstance(source, fx.Node):
        return None
    return Norm(frozenset({node}), source, node, node)


def _written_out(context: Context, core: fx.Node) -> Norm | None:
    """Match ``x * rsqrt(mean(x ** 2) + eps)`` and what scales and casts it within the same module."""
    members = {core}
    node = core.args[0]
    if isinstance(node, fx.Node) and op_name(node) == "add":
        members.add(node)
        node = next(iter(node.all_input_nodes), None)
    if not isinstance(node, fx.Node) or op_name(node) != "mean":
        return None
    members.add(node)
    square = node.args[0]
    if not isinstance(square, fx.Node) or op_name(square) not in ("pow", "mul", "square"):
        return None
    members.add(square)
    widened = square.args[0]
    if not isinstance(widened, fx.Node) or any(operand is not widened for operand in square.all_input_nodes):
        return None
    source = widened
    if op_name(widened) in CASTS and isinstance(widened.args[0], fx.Node):
        source = widened.args[0]
        members.add(widened)
    scaled = only_user(core)
    if scaled is None or op_name(scaled) != "mul" or widened not in scaled.all_input_nodes:
        return None
    members.add(scaled)
    output, gate = _follow(context, scaled, members, source)
    if any(user not in members for node in members - {output} for user in node.users):
        return None
    return Norm(frozenset(members), source, output, core, gate)


def _follow(
    context: Context, node: fx.Node, members: set[fx.Node], source: fx.Node
) -> tuple[fx.Node, fx.Node | None]:
    """Extend ``members`` by casts, by scaling with weights, and by one gate; stay in the norm's module."""
    home = context.view.path(node)
    gate: fx.Node | None = None
    while (user := only_user(node)) is not None and context.view.path(user) == home:
        if op_name(user) in CASTS and user.args[0] is node:
            members.add(user)
            node = user
            continue
        if op_name(user) != "mul":
            break
        other = next((operand for operand in user.all_input_nodes if operand is not node), None)
        if other is None:
            break
        scale = context.from_weights(other)
        if scale is not None:
            members |= scale
        elif gate is None and (found := _gate(context, other, home)) is not None:
            gated, gate = found
            members |= gated
        else:
            break
        members.add(user)
        node = user
    return node, gate


def _gate(context: Context, node: fx.Node, home: str) -> tuple[set[fx.Node], fx.Node] | None:
    """``act(cast(gate))`` in the norm's module: its nodes and the gate tensor."""
    members: set[fx.Node] = set()
    active = False
    while context.view.path(node).startswith(home) and only_user(node) is not None and node.args:
        name = op_name(node)
        if name in _ACTIVATIONS:
            active = True
        elif name not in CASTS:
            break
        members.add(node)
        operand = node.args[0]
        if not isinstance(operand, fx.Node):
            return None
        node = operand
    return (members, node) if active else None

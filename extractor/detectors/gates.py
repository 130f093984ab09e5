"""``silu_gate``: an activation of one tensor times another, in either operand order, halves of one tensor included."""

from __future__ import annotations

from torch import fx

from extractor.detectors.context import Context, is_floating, only_user
from extractor.families import Family
from extractor.graph import op_name, shape_of

ACTIVATIONS = frozenset(["silu", "gelu", "relu", "relu6", "elu", "mish", "hardswish", "softplus", "tanh"])


def detect_gates(context: Context) -> None:
    """Claim every ``act(a) * b`` whose operands are activations of equal shape."""
    for node in context.view.named("mul"):
        if node in context.claimed or len(node.all_input_nodes) != 2:
            continue
        for active, other in (node.all_input_nodes, reversed(node.all_input_nodes)):
            if (
                op_name(active) in ACTIVATIONS
                and active not in context.claimed
                and _pairs(context, active, other)
            ):
                members = {node, active} | _halves(context, active.args[0], other)
                roles = {operand: "gate" for operand in active.all_input_nodes} | {other: "up"}
                if context.claim(Family.SILU_GATE, members, focus=node, roles=roles) is None:
                    context.claim(Family.SILU_GATE, {node, active}, focus=node, roles=roles)
                break


def _pairs(context: Context, active: fx.Node, other: fx.Node) -> bool:
    return (
        only_user(active) is not None
        and is_floating(other)
        and not context.is_weight(other)
        and shape_of(active) == shape_of(other)
    )


def _halves(context: Context, gate: object, up: fx.Node) -> set[fx.Node]:
    """If both operands are parts of one tensor that nothing else uses, the nodes that split it."""
    if not isinstance(gate, fx.Node):
        return set()
    parts = {gate, up}
    if any(op_name(node) != "getitem" or len(node.users) != 1 or node in context.claimed for node in parts):
        return set()
    wholes = {node.args[0] for node in parts}
    if len(wholes) != 1:
        return set()
    whole = wholes.pop()
    assert isinstance(whole, fx.Node)
    if op_name(whole) in ("chunk", "split") and set(whole.users) == parts and whole not in context.claimed:
        return parts | {whole}
    return parts if is_floating(whole) else set()

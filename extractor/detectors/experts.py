"""Mixture of experts: the router, and the two routed products over 3-D expert weights.

A routed product is ``grouped_mm`` over rows sorted by expert, or a gather of expert weights followed by ``bmm``.
Which of the two it is (gate/up or down) is decided by what stands between them: the first feeds the gate.
"""

from __future__ import annotations

from torch import fx

from extractor.detectors.context import Context, only_user
from extractor.families import Family
from extractor.graph import is_tensor, op_name, parent, shape_of

_GROUPED = ("_grouped_mm", "grouped_mm", "grouped_mm_fallback", "grouped_mm_fallback.default")
_ROUTER_LIMIT = 60  # nodes; routers have 8 to 25


def detect_router(context: Context) -> None:
    """A module that projects and then selects: everything in it that computes."""
    for selection in context.view.named("topk"):
        path = context.view.path(selection)
        if selection in context.claimed or not path:
            continue
        members = {
            node
            for node in context.view.calls()
            if context.view.path(node) == path and node not in context.claimed and not _leading_view(node)
        }
        projections = [node for node in members if op_name(node) == "linear"]
        if projections and len(members) <= _ROUTER_LIMIT:
            _claim_router(context, members, projections[0])


def _claim_router(context: Context, members: set[fx.Node], projection: fx.Node) -> None:
    # What neither follows from the projection nor computes its operands is not the router's business.
    position = context.view.position
    for node in sorted(members, key=lambda n: -position[n]):
        if not node.users and not any(root in members for root in [context.view.root[node]]):
            members = members - {node}
    context.claim(Family.ROUTER, members, focus=projection)


def _leading_view(node: fx.Node) -> bool:
    return op_name(node) == "_log_api_usage_once"


def detect_routed(context: Context) -> None:
    """Claim the routed products of every expert block."""
    blocks: dict[str, list[tuple[set[fx.Node], fx.Node, dict[fx.Node, str]]]] = {}
    for node in context.view.calls():
        if node in context.claimed:
            continue
        name = op_name(node)
        match = (
            _grouped(context, node)
            if name in _GROUPED
            else _gathered(context, node)
            if name == "bmm"
            else None
        )
        if match is not None:
            members, roles = match
            blocks.setdefault(context.view.path(node), []).append((members, node, roles))
    for products in blocks.values():
        families = (Family.ROUTED_GATE_UP,) * (len(products) - 1) + (Family.ROUTED_DOWN,)
        for family, (members, node, roles) in zip(families, products, strict=True):
            context.claim(family, members, focus=node, roles=roles)


def moe_parents(context: Context) -> set[str]:
    """Paths of the blocks that hold routed experts: ``model.layers.3.mlp``."""
    routed = (Family.ROUTED_GATE_UP, Family.ROUTED_DOWN)
    return {parent(region.site) for region in context.regions if region.family in routed} - {""}


def _grouped(context: Context, node: fx.Node) -> tuple[set[fx.Node], dict[fx.Node, str]] | None:
    rows, weight = node.args[0], node.args[1]
    offsets = node.kwargs.get("offs", node.args[2] if len(node.args) > 2 else None)
    if not (isinstance(rows, fx.Node) and isinstance(weight, fx.Node) and isinstance(offsets, fx.Node)):
        return None
    made = context.from_weights(weight)
    if made is None or len(shape_of(weight)) != 3:
        return None
    members, entering = {node} | made, rows
    if op_name(rows) == "to" and only_user(rows) is node and isinstance(rows.args[0], fx.Node):
        members.add(rows)
        entering = rows.args[0]
    return members, {offsets: "offsets", entering: "x"}


def _gathered(context: Context, node: fx.Node) -> tuple[set[fx.Node], dict[fx.Node, str]] | None:
    """``bmm`` one of whose operands is ``weight[expert_ids]``."""
    members, roles, gathers = {node}, {}, 0
    for operand in node.all_input_nodes:
        chain: list[fx.Node] = []
        walk = operand
        while op_name(walk) in ("unsqueeze", "transpose", "to") and only_user(walk) is not None:
            chain.append(walk)
            inner = walk.args[0]
            assert isinstance(inner, fx.Node)
            walk = inner
        if (
            op_name(walk) == "getitem"
            and context.is_weight(walk.args[0])
            and isinstance(walk.args[1], fx.Node)
        ):
            if len(walk.users) != 1 or len(shape_of(walk)) != 3:
                return None
            gathers += 1
            members |= {walk, *chain}
            roles[walk.args[1]] = "ids"
        elif all(op_name(step) == "unsqueeze" for step in chain):
            members |= set(chain)
            roles[walk] = "x"
    if gathers != 1:
        return None
    follower = only_user(node)
    if follower is not None and op_name(follower) == "squeeze" and is_tensor(follower):
        members.add(follower)
    return members, roles

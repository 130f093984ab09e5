"""Gated DeltaNet: ``gdn_step``, the recurrence from the convolution's output to the input of the gated norm.

A GDN module is recognised by a depthwise ``conv1d`` and a ``softplus`` decay. Its step starts after the
convolution, because the convolution's state is written in place there, and ends at what the gated norm reads,
with the new recurrent state as a second output.
"""

from __future__ import annotations

from torch import fx

from extractor.detectors.context import Context
from extractor.families import Family
from extractor.graph import is_inplace, is_tensor, op_name

_STEP_LIMIT = (
    128  # nodes; a step has about 75, chunked prefill unrolls into hundreds that depend on its length
)


def gdn_paths(context: Context) -> set[str]:
    """Module paths that hold a depthwise convolution and a softplus decay."""
    convolutions = {context.view.path(node) for node in context.view.named("conv1d") if _groups(node) > 1}
    decays = {context.view.path(node) for node in context.view.named("softplus")}
    return (convolutions & decays) - {""}


def detect_gdn_step(context: Context) -> None:
    """Claim one ``gdn_step`` a GDN module of a decode step; prefill runs a chunked form of another structure."""
    if context.dims.query != 1:
        return
    for path in sorted(gdn_paths(context)):
        local = [node for node in context.view.calls() if context.view.path(node) == path]
        starts = [node for node in local if op_name(node) == "conv1d"]
        members = _between(context, local, set(starts))
        if not members or len(members) > _STEP_LIMIT:
            continue
        roles: dict[fx.Node, str] = {node: "channels" for node in starts}
        for node in context.binding.states:
            if any(user in members for user in node.users):
                roles[node] = "state"
        context.claim(Family.GDN_STEP, members, focus=starts[0], roles=roles)


def _between(context: Context, local: list[fx.Node], starts: set[fx.Node]) -> set[fx.Node]:
    """What the gated norm and the state update read, back to the convolution, projections and states."""
    inside = set(local)
    wanted: list[fx.Node] = []
    for region in context.regions:
        if region.family is Family.GDN_NORM_GATE:
            wanted += [_unshaped(node) for node in region.inputs if node in inside]
    wanted += [
        node.args[1]
        for node in local
        if op_name(node) == "copy_"
        and node.args[0] in context.binding.states
        and isinstance(node.args[1], fx.Node)
    ]
    reached: set[fx.Node] = set()
    depends: dict[fx.Node, bool] = {}
    for node in context.view.nodes:
        depends[node] = node in starts or any(depends[operand] for operand in node.all_input_nodes)
    pending = [node for node in wanted if depends[node]]
    while pending:
        node = pending.pop()
        stops = node in starts or node not in inside or node in context.claimed or op_name(node) == "linear"
        if node in reached or stops:
            continue
        if is_inplace(node) and context.view.root[node].op == "placeholder":
            continue
        reached.add(node)
        pending += node.all_input_nodes
    # Writes into tensors the step allocates itself belong to it.
    grown = True
    while grown:
        grown = False
        for node in local:
            if node not in reached and is_inplace(node) and context.view.root[node] in reached:
                reached.add(node)
                pending = list(node.all_input_nodes)
                while pending:
                    inner = pending.pop()
                    if (
                        inner in inside
                        and inner not in reached
                        and inner not in starts
                        and op_name(inner) != "linear"
                    ):
                        reached.add(inner)
                        pending += inner.all_input_nodes
                grown = True
    return {node for node in reached if is_tensor(node) or node.users or is_inplace(node)}


def _unshaped(node: fx.Node) -> fx.Node:
    """Before the reshape to rows, which comes after the write of the new state and may not join the region."""
    while op_name(node) in ("reshape", "view") and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _groups(node: fx.Node) -> int:
    groups = node.kwargs.get("groups", node.args[6] if len(node.args) > 6 else 1)
    return groups if isinstance(groups, int) else 1

"""Projections: sibling linears over one input as one region, single linears by the role they play.

Siblings share the input node and the parent module. The role is read off the neighbours: what produced the
input, and which regions use the output.
"""

from __future__ import annotations

from collections import defaultdict

from torch import fx

from extractor.detectors.context import CASTS, VIEWS, Context, is_floating, only_user
from extractor.detectors.experts import moe_parents
from extractor.detectors.gdn import gdn_paths
from extractor.families import Family
from extractor.graph import op_name, parent

_ATTENTION = frozenset({Family.ATTENTION_DECODE, Family.QK_NORM_ROPE})


def detect_linears(context: Context) -> None:
    """Claim every linear whose weight is a parameter."""
    groups: dict[tuple[fx.Node, str], list[fx.Node]] = defaultdict(list)
    for node in context.view.named("linear"):
        if node not in context.claimed and context.is_weight(node.args[1]):
            source = node.args[0]
            assert isinstance(source, fx.Node)
            groups[source, parent(context.view.path(node))].append(node)
    gdn, moe = gdn_paths(context), moe_parents(context)
    for (source, home), siblings in groups.items():
        family = _role(context, siblings, home, gdn, moe)
        if family is Family.ATTENTION_OUTPUT and _claim_gated_output(context, siblings):
            continue
        roles = {source: "x"}
        if len(siblings) > 1 and context.claim(family, set(siblings), roles=roles) is not None:
            continue
        for node in siblings:
            context.claim(_role(context, [node], home, gdn, moe), {node}, focus=node, roles=roles)


def _role(context: Context, siblings: list[fx.Node], home: str, gdn: set[str], moe: set[str]) -> Family:
    after: set[Family] = set()
    for node in siblings:
        after |= context.families_after(node)
    source = siblings[0].args[0]
    assert isinstance(source, fx.Node)
    before = _family_before(context, source)
    routed = any(home == path or home.startswith(f"{path}.") for path in moe)
    if Family.SILU_GATE in after and before is not Family.SILU_GATE:
        return Family.SHARED_GATE_UP if routed else Family.FFN_GATE_UP
    if home in gdn and before not in (Family.GDN_NORM_GATE, Family.ATTENTION_DECODE):
        return Family.GDN_INPUT
    if after & _ATTENTION:
        return Family.MLA_PROJECTION if _is_latent(context, source) else Family.ATTENTION_QKV
    if _is_latent(context, source) and any(_reaches_attention(context, node) for node in siblings):
        return Family.MLA_PROJECTION
    if before is Family.SILU_GATE:
        return Family.FFN_DOWN
    if before in (Family.ATTENTION_DECODE, Family.GDN_NORM_GATE) or _output_gate(context, source) is not None:
        return Family.ATTENTION_OUTPUT
    if any(_reaches_output(node) for node in siblings):
        return Family.LM_HEAD
    return Family.LINEAR


def _family_before(context: Context, source: fx.Node) -> Family | None:
    region = context.region(context.producer(source))
    return region.family if region is not None else None


def _is_latent(context: Context, source: fx.Node) -> bool:
    """Whether the input is a compressed latent: a norm of a projection, or such a thing read back from a cache."""
    if context.producer(source) in context.binding.states:
        return True
    region = context.region(context.producer(source))
    if region is None or region.family is not Family.RMSNORM:
        return False
    return any(op_name(context.producer(node)) == "linear" for node in region.inputs)


def _reaches_attention(context: Context, node: fx.Node) -> bool:
    """Whether the values end up in attention or a cache, through parts and writes into fresh tensors."""
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            if user in seen:
                continue
            seen.add(user)
            region = context.region(user)
            if (region is not None and region.family in _ATTENTION) or op_name(user) == "index_copy_":
                return True
            if op_name(user) == "copy_":
                target = context.view.root[user]
                pending += [target, *_aliases(context, target)]
            elif op_name(user) in VIEWS or op_name(user) == "cat":
                pending.append(user)
    return False


def _aliases(context: Context, root: fx.Node) -> list[fx.Node]:
    return [node for node in root.users if context.view.root[node] is root]


def _reaches_output(node: fx.Node) -> bool:
    """Whether the values leave the model, through casts and soft caps only."""
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            if user.op == "output":
                return True
            pointwise = op_name(user) in VIEWS | CASTS | {"mul", "truediv", "div", "tanh"}
            if user not in seen and pointwise and len(user.all_input_nodes) == 1:
                seen.add(user)
                pending.append(user)
    return False


def _output_gate(context: Context, source: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """``attention * sigmoid(gate)`` in front of an output projection: the product and the sigmoid."""
    if op_name(source) != "mul" or len(source.all_input_nodes) != 2 or source in context.claimed:
        return None
    for gate, value in (source.all_input_nodes, reversed(source.all_input_nodes)):
        region = context.region(context.producer(value))
        if op_name(gate) == "sigmoid" and region is not None and region.family is Family.ATTENTION_DECODE:
            return source, gate
    return None


def _claim_gated_output(context: Context, siblings: list[fx.Node]) -> bool:
    if len(siblings) != 1:
        return False
    source = siblings[0].args[0]
    assert isinstance(source, fx.Node)
    found = _output_gate(context, source)
    if found is None or only_user(source) is None or only_user(found[1]) is None or not is_floating(source):
        return False
    members = {siblings[0], *found}
    product, sigmoid = found
    roles = {operand: "gate" for operand in sigmoid.all_input_nodes}
    roles |= {operand: "x" for operand in product.all_input_nodes if operand is not sigmoid}
    return context.claim(Family.ATTENTION_OUTPUT, members, focus=siblings[0], roles=roles) is not None

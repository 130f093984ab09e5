"""Cut a captured step into operator regions, by structure alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import fx

from extractor.binding import Binding
from extractor.detectors.attention import detect_attention
from extractor.detectors.context import Context, Rejected
from extractor.detectors.elementwise import detect_elementwise
from extractor.detectors.experts import detect_routed, detect_router
from extractor.detectors.gates import detect_gates
from extractor.detectors.gdn import detect_gdn_step
from extractor.detectors.linears import detect_linears
from extractor.detectors.norms import detect_gated_norms, detect_norms, find_norms
from extractor.detectors.rotary import detect_rotary, find_tables
from extractor.graph import GraphView, StepDims
from extractor.keys import exact_key, op_key
from extractor.regions import Region


@dataclass(frozen=True)
class Detection:
    """The regions of one graph in graph order, disjoint, and what was found but refused."""

    regions: tuple[Region, ...]
    rejected: tuple[Rejected, ...]


def detect(gm: fx.GraphModule, binding: Binding, dims: StepDims) -> list[Region]:
    """The legal operator regions of one step, disjoint and in graph order.

    Args:
        gm: the graph as a torch.compile backend receives it; it is not changed.
        binding: from :func:`extractor.binding.bind` for the same graph.
        dims: the step's batch, query length and cache slots.
    """
    return list(detect_all(gm, binding, dims).regions)


def detect_all(gm: fx.GraphModule, binding: Binding, dims: StepDims) -> Detection:
    """As :func:`detect`, with the refused candidates and why."""
    context = Context(GraphView(gm.graph, binding.paths), binding, dims)
    find_tables(context)
    norms = find_norms(context)
    # Order matters: a node belongs to the first that claims it, and roles are read off earlier claims.
    detect_rotary(context, norms)
    detect_attention(context)
    detect_gated_norms(context, norms)
    detect_gdn_step(context)
    detect_router(context)
    detect_routed(context)
    detect_norms(context, norms)
    detect_gates(context)
    detect_linears(context)
    detect_elementwise(context)
    position = context.view.position
    keyed = []
    for region in sorted(context.regions, key=lambda found: position[found.nodes[0]]):
        key = op_key(region, dims)
        keyed.append(replace(region, op_key=key, exact_key=exact_key(region, key)))
    return Detection(tuple(keyed), tuple(context.rejected))

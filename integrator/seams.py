"""Where a captured decode step can be cut: the detector's regions, as the graph patch uses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from extractor.binding import Binding, bind
from extractor.detect import detect
from extractor.families import Family
from extractor.graph import StepDims, result


@dataclass(frozen=True)
class Seam:
    """One region of a captured step that a kernel may take over.

    ``weights`` are placeholders, ``inputs`` and ``outputs`` any nodes, all in the order of the task's kernel
    arguments. ``anchor`` is the node in front of which one call is legal: all inputs are computed by then, all
    cache writes the region must see are done, and no user of an output has run.
    """

    family: Family
    op_key: str
    exact_key: str
    site: str  # "model.layers.3.mlp"
    batch: int
    rows: int  # M: batch times query length
    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    weights: tuple[fx.Node, ...]
    anchor: fx.Node


SeamFinder = Callable[[fx.GraphModule, Sequence[Any]], Sequence[Seam]]


def seam_finder(model: nn.Module) -> SeamFinder:
    """The detector, tied to one model, as the graph patch calls it with each decode step Dynamo hands over."""

    def find(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> list[Seam]:
        binding = bind(model, graph_module, example_inputs)
        dims = decode_dims(binding)
        return [
            Seam(
                family=region.family,
                op_key=region.op_key,
                exact_key=region.exact_key,
                site=region.site,
                batch=dims.batch,
                rows=dims.rows,
                nodes=region.nodes,
                inputs=region.inputs,
                outputs=region.outputs,
                weights=tuple(region.weights.values()),
                anchor=region.anchor,
            )
            for region in detect(graph_module, binding, dims)
        ]

    return find


def decode_dims(binding: Binding) -> StepDims:
    """Sizes of a decode step, from what enters its graph.

    Ids are [batch, 1] integers and caches [batch, heads, length, head size]. A patched call may bring a mask or
    positions as well, so the inputs are told apart by shape, not by name.
    """
    values = [value for node in binding.states if isinstance(value := result(node), torch.Tensor)]
    columns = [v for v in values if v.ndim == 2 and v.shape[1] == 1 and not v.is_floating_point()]
    batch = max((int(v.shape[0]) for v in columns), default=1)
    caches = [v for v in values if v.ndim == 4 and v.shape[0] == batch and v.is_floating_point()]
    return StepDims(batch=batch, query=1, cache_len=max((int(v.shape[2]) for v in caches), default=0))

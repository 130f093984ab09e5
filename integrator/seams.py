"""Where a captured step can be cut: the detector's regions, as the graph patch uses them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from extractor.families import Family


@dataclass(frozen=True)
class Seam:
    """One region of a captured step that a kernel may take over.

    ``weights`` are placeholders, ``inputs`` and ``outputs`` any nodes, all in the order of the task's kernel
    arguments. ``insert_before`` is the node in front of which a call is legal: all inputs are computed by then, all
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
    insert_before: fx.Node

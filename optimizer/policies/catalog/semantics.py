"""What a task computes, derived from its op records alone: never from a model's or a module's name.

:func:`derive` answers with a small frozen dataclass (:class:`LinearGroup`, :class:`DecodeAttention`,
:class:`RowProgram`) that a template can render, or ``None`` when the graph says anything that no template
covers. It does not guess: an unknown op, option, dtype or layout means ``None``.
"""

from __future__ import annotations

from typing import TypeAlias

from extractor.schema import TaskSpec
from optimizer.policies.catalog.attention import DecodeAttention, derive_attention
from optimizer.policies.catalog.graph import Graph, NotCovered
from optimizer.policies.catalog.knobs import RowKnobs
from optimizer.policies.catalog.linear import LinearGroup, derive_linear
from optimizer.policies.catalog.render import render_rows
from optimizer.policies.catalog.rows import RowProgram, derive_rows

Semantics: TypeAlias = LinearGroup | DecodeAttention | RowProgram


def derive(spec: TaskSpec) -> Semantics | None:
    """The operator a task computes, or ``None`` if the catalog has no template for it."""
    semantics, _ = explain(spec)
    return semantics


def explain(spec: TaskSpec) -> tuple[Semantics | None, str]:
    """:func:`derive`, with the reason why there is none."""
    graph = Graph(spec)
    names = {op.op for op in spec.ops}
    try:
        if "linear" in names:
            return derive_linear(graph), ""
        if names & {"matmul", "scaled_dot_product_attention"}:
            return derive_attention(graph), ""
        program = derive_rows(graph)
        render_rows(graph, program, "portable", RowKnobs(), "")
    except NotCovered as why:
        return None, str(why)
    return program, ""

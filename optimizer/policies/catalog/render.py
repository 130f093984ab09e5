"""Turns semantics and a plan into the text of a complete C++ candidate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.policies.catalog.attention import DecodeAttention
from optimizer.policies.catalog.graph import Graph
from optimizer.policies.catalog.knobs import LANES, AttentionKnobs, LinearKnobs, RowKnobs
from optimizer.policies.catalog.linear import PROLOGUE_BYTES, LinearGroup, prologue_code
from optimizer.policies.catalog.row_ops import number
from optimizer.policies.catalog.row_shapes import Shapes
from optimizer.policies.catalog.row_writer import NestWriter
from optimizer.policies.catalog.rows import RowProgram

if TYPE_CHECKING:
    import jinja2

_FOLDER = Path(__file__).parent / "templates"


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # the text is C++, not HTML
    )


def template(name: str, **values: object) -> str:
    """Render ``templates/NAME``."""
    return _environment().get_template(name).render(**values)


def render_rows(graph: Graph, program: RowProgram, body: str, knobs: RowKnobs, title: str) -> str:
    """A row program as a candidate. Raises NotCovered where the program cannot be written."""
    shapes = Shapes(graph)
    buffered = frozenset(program.shared) if knobs.buffer else frozenset()
    functions, nests = [], []
    for position, nest in enumerate(program.nests):
        writer = NestWriter(graph, nest, shapes, buffered, LANES[body], knobs.unroll)
        functions.append(writer.write(f"rows_{position}"))
        nests.append({"function": f"rows_{position}", "rows": writer.rows()})
    code = "\n\n".join(functions)
    return template(
        "rows.cpp.j2",
        title=title,
        shared=sorted(buffered),
        helpers=template("row_vectors.hpp.j2", code=code, lanes=LANES[body], body=body),
        code=code,
        checks=shapes.checks,
        nests=nests,
    )


def render_linear(
    graph: Graph, group: LinearGroup, body: str, schedules: Mapping[int, LinearKnobs], title: str
) -> str:
    """A linear group as a candidate. ``schedules`` maps each of ``SPECIALISED`` row counts to its schedule."""
    code, checks, rows = prologue_code(graph, group, LANES[body])
    prologue = ""
    if code:
        limit = max(1, min(64, PROLOGUE_BYTES // (group.k * 4)))
        prologue = template(
            "prologue.hpp.j2",
            code=code,
            checks=checks,
            rows=rows,
            limit=limit,
            helpers=template("row_vectors.hpp.j2", code=code, lanes=LANES[body], body=body),
        )
    return template(
        "linear.cpp.j2",
        title=title,
        vectors=template("vectors.hpp.j2", body=body, dtype=group.dtype),
        k=group.k,
        parts=group.parts,
        has_bias=any(part.bias is not None for part in group.parts),
        schedules=sorted(schedules.items()),
        x_input=group.x_input,
        prologue=prologue,
    )


def render_attention(attention: DecodeAttention, body: str, knobs: AttentionKnobs, title: str) -> str:
    """Decode attention as a candidate."""
    return template(
        "attention.cpp.j2",
        title=title,
        vectors=template("vectors.hpp.j2", body=body, dtype=attention.dtype),
        helpers=template("row_vectors.hpp.j2", code="kg_exp", lanes=LANES[body], body=body),
        s=attention,
        scale=number(attention.scale),
        knobs=knobs,
        body=body,
    )

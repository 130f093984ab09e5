"""Row programs: any region of element ops, last-axis reductions and shape ops, evaluated row by row.

One generator serves norms (plain, residual, gated, weighted or not, ``w`` or ``1 + w``), gates (SiLU, GELU,
chunked), q/k norm with rotary embedding (full, partial, interleaved) and loose element chains. The rounding
after every op is eager's, so the order in which a norm rounds and scales needs no special case.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.policies.catalog.graph import Graph, NotCovered, Value, operand, references
from optimizer.policies.catalog.row_ops import FLOATS, REDUCTIONS, is_identity
from optimizer.policies.catalog.row_shapes import VIEWS

MAX_ROW = 65536  # elements; longer rows would need blocking
_OUTER_SHAPE_OPS = VIEWS | {"transpose", "permute", "expand"}


@dataclass(frozen=True)
class Nest:
    """Outputs that are walked together: they live on one domain (the rows of value ``domain``).

    ``outputs`` are ``(position among the task's outputs, value returned, value on the domain)``; the returned
    value is the domain value seen through shape ops.
    """

    domain: str
    outputs: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True)
class RowProgram:
    """A row-wise region: its nests and the values worth keeping in a row buffer (used by several loops)."""

    nests: tuple[Nest, ...]
    shared: tuple[str, ...]
    row: int  # longest row, elements
    reductions: int
    dtype: str  # of the first output


def derive_rows(graph: Graph) -> RowProgram:
    """The row program of a whole task. Raises NotCovered."""
    nests = make_nests(graph, [(position, value) for position, value in enumerate(graph.outputs)])
    return program_of(graph, nests)


def program_of(graph: Graph, nests: tuple[Nest, ...]) -> RowProgram:
    """Collect what the plans and the writer need to know of ``nests``. Raises NotCovered."""
    lengths = [graph.values[nest.domain].shape[-1] for nest in nests]
    if max(lengths) > MAX_ROW:
        raise NotCovered(f"a row of {max(lengths)} elements")
    return RowProgram(
        nests=nests,
        shared=shared_values(graph),
        row=max(lengths),
        reductions=sum(1 for op in graph.spec.ops if op.op in REDUCTIONS),
        dtype=graph.values[nests[0].domain].dtype,
    )


def make_nests(graph: Graph, outputs: list[tuple[int, Value]]) -> tuple[Nest, ...]:
    """Group outputs by domain. Raises NotCovered for outputs that are inputs or of unknown dtypes."""
    groups: dict[tuple[int, ...], list[tuple[int, str, str]]] = {}
    for position, value in outputs:
        if value.kind != "op" or value.dtype not in FLOATS or not value.shape:
            raise NotCovered(f"output {value.name} is no floating-point op result")
        base = value
        while base.op is not None and (base.op.op in _OUTER_SHAPE_OPS - {"expand"} or is_identity(base.op)):
            source = graph.value(operand(base.op, 0, "input"))
            if source.kind != "op" or source.dtype != base.dtype:
                break
            base = source
        groups.setdefault(base.shape, []).append((position, value.name, base.name))
    return tuple(Nest(domain=items[0][2], outputs=tuple(items)) for items in groups.values())


def shared_values(graph: Graph) -> tuple[str, ...]:
    """Values that several loops of a row need: read by a reduction and again later, or sliced several ways."""
    reduced = _upstream_of_reductions(graph)
    found: list[str] = []
    for op in graph.spec.ops:
        if (
            not op.shape
            or op.shape[-1] == 1
            or op.op in VIEWS
            or op.op in ("cat", "chunk", "split", "getitem")
        ):
            continue
        users = graph.users(op.name)
        sliced = sum(1 for user in users if user.op in ("getitem", "cat"))
        summed = any(user.name in reduced for user in users)
        if len(users) > 1 and (sliced or (summed and any(user.name not in reduced for user in users))):
            found.append(op.name)
    return tuple(found)


def _upstream_of_reductions(graph: Graph) -> set[str]:
    """Ops whose every use ends in a reduction, and the reductions themselves."""
    inside: set[str] = set()
    returned = set(graph.spec.output_refs)
    for op in reversed(graph.spec.ops):
        if op.op in REDUCTIONS:
            inside.add(op.name)
        else:
            users = graph.users(op.name)
            if (
                op.name not in returned
                and users
                and all(user.name in inside and references(user.args) for user in users)
            ):
                inside.add(op.name)
    return inside

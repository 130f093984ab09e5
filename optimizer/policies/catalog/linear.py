"""Linear groups: one to four sibling linears over one input, with an optional row-wise prologue on that input."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.policies.catalog.graph import Graph, NotCovered, Value, operand, references
from optimizer.policies.catalog.row_ops import FLOATS
from optimizer.policies.catalog.row_shapes import Shapes
from optimizer.policies.catalog.row_writer import NestWriter
from optimizer.policies.catalog.rows import Nest, make_nests

MAX_PARTS = 8
PROLOGUE_BYTES = 256 * 1024  # of stack for the computed input


@dataclass(frozen=True)
class LinearPart:
    """One linear: positions of its weight, bias and output in the task's lists, and its width ``n``."""

    weight: int
    bias: int | None
    output: int
    n: int


@dataclass(frozen=True)
class LinearGroup:
    """``y_j = x @ w_j.T (+ bias_j)`` for all parts; ``x`` is input ``x_input`` or computed by ``prologue``."""

    k: int
    parts: tuple[LinearPart, ...]
    dtype: str
    x_input: int | None
    prologue: Nest | None

    @property
    def n(self) -> int:
        """Width of all parts together."""
        return sum(part.n for part in self.parts)


def derive_linear(graph: Graph) -> LinearGroup:
    """The linear group of a whole task. Raises NotCovered."""
    parts: list[LinearPart] = []
    source: Value | None = None
    covered: set[str] = set()
    for position, output in enumerate(graph.outputs):
        linear = output
        while linear.op is not None and linear.op.op in ("view", "reshape", "contiguous"):
            covered.add(linear.name)
            before = graph.value(operand(linear.op, 0, "input"))
            if before.shape != linear.shape:
                raise NotCovered("an output that is reshaped")
            linear = before
        if linear.op is None or linear.op.op != "linear":
            raise NotCovered(f"output {output.name} is no linear")
        x, weight = graph.value(operand(linear.op, 0, "input")), graph.value(operand(linear.op, 1, "weight"))
        raw_bias = operand(linear.op, 2, "bias")
        bias = None if raw_bias is None else graph.value(raw_bias)
        if weight.kind != "weight" or len(weight.shape) != 2 or (bias is not None and bias.kind != "weight"):
            raise NotCovered("a linear over something that is no parameter")
        dtypes = {x.dtype, weight.dtype, linear.dtype} | ({bias.dtype} if bias is not None else set())
        if len(dtypes) != 1 or linear.dtype not in FLOATS:
            raise NotCovered(f"a linear of mixed dtypes {sorted(dtypes)}")
        if source is not None and source.name != x.name:
            raise NotCovered("linears over different inputs")
        source = x
        covered.add(linear.name)
        parts.append(
            LinearPart(weight.position, None if bias is None else bias.position, position, weight.shape[0])
        )
    if source is None or len(parts) > MAX_PARTS:
        raise NotCovered(f"{len(parts)} linears")
    k = source.shape[-1]
    prologue: Nest | None = None
    if source.kind == "op":
        if source.name in graph.spec.output_refs:
            raise NotCovered("the linears' input is returned too")
        (prologue,) = make_nests(graph, [(0, source)])
        if prologue.domain != source.name:
            prologue = Nest(source.name, ((0, source.name, source.name),))
        covered |= _upstream(graph, source)
    if any(op.name not in covered for op in graph.spec.ops):
        raise NotCovered("ops beside the linears")
    x_input = source.position if source.kind == "input" else None
    if source.kind == "weight":
        raise NotCovered("a linear of a parameter")
    group = LinearGroup(k, tuple(parts), source.dtype, x_input, prologue)
    prologue_code(graph, group, 4)  # raises NotCovered if it cannot be written
    return group


def prologue_code(graph: Graph, group: LinearGroup, lanes: int) -> tuple[str, list[str], str]:
    """C++ of the prologue: its row function, the run-time checks, the number of rows. Empty without one."""
    if group.prologue is None:
        return "", [], ""
    shapes = Shapes(graph)
    writer = NestWriter(graph, group.prologue, shapes, frozenset(), lanes)
    code = writer.write("rows_x", target="x_rows")
    return code, shapes.checks, writer.rows()


def _upstream(graph: Graph, value: Value) -> set[str]:
    found: set[str] = set()
    pending = [value.name]
    while pending:
        item = graph.value({"ref": pending.pop()})
        if item.op is None or item.name in found:
            continue
        found.add(item.name)
        pending += references((item.op.args, item.op.kwargs))
    return found

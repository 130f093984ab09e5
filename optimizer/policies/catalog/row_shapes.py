"""Shape knowledge of the row-wise generator: run-time sizes of every value, and index maps of shape ops.

Sizes are C expressions over ``in[k].size[d]``: batch and length may differ from the recorded workload, the last
axis may not. Wherever the derivation assumes something about a run-time size it leaves a check, and the
candidate declines (``KG_UNSUPPORTED``) when the check fails: it is never wrong because of a guessed axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from extractor.schema import OpRecord
from optimizer.policies.catalog.graph import Graph, NotCovered, Value, operand, reference, whole
from optimizer.policies.catalog.row_index import (
    Index,
    Span,
    SplitAt,
    boundary,
    flatten_group,
    shape_groups,
    unflatten_group,
)
from optimizer.policies.catalog.row_ops import REDUCTIONS, formula, is_identity, list_argument

VIEWS = {"view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze"}
SHAPE_OPS = VIEWS | {"transpose", "permute", "expand", "getitem", "cat", "t", "narrow"}


@dataclass
class Shapes:
    """Run-time sizes by value, and the checks they rest on (C conditions that must hold)."""

    graph: Graph
    checks: list[str] = field(default_factory=list)
    _sizes: dict[str, list[str]] = field(default_factory=dict)
    _known: dict[str, tuple[int, ...]] = field(default_factory=dict)  # what size expressions are, by workload

    def require(self, condition: str) -> None:
        """Remember a run-time condition once."""
        if condition not in self.checks:
            self.checks.append(condition)

    def require_equal(self, left: str, right: str) -> None:
        """Two size expressions must agree; decided now when both are literals."""
        if left == right:
            return
        if left.isdigit() and right.isdigit():
            raise NotCovered(f"sizes {left} and {right} disagree")
        self.require(f"{left} == {right}")

    def sizes(self, value: Value) -> list[str]:
        """C expressions of the value's run-time sizes."""
        if value.name not in self._sizes:
            found = self._find(value)
            expected = [
                int(size) if size.isdigit() else own for size, own in zip(found, value.shape, strict=False)
            ]
            if len(found) != len(value.shape) or expected != list(value.shape):
                raise NotCovered(f"{value.name} has shape {value.shape}, which its op does not give")
            self._sizes[value.name] = found
        return self._sizes[value.name]

    def _find(self, value: Value) -> list[str]:
        if value.kind == "weight":
            return [str(size) for size in value.shape]
        if value.kind == "input":
            name = f"in[{value.position}]"
            self.require(f"{name}.ndim == {len(value.shape)}")
            sizes = [f"{name}.size[{axis}]" for axis in range(len(value.shape))]
            recorded = [workload.inputs[value.position].shape for workload in self.graph.spec.workloads]
            for axis, size in enumerate(sizes):
                self._known[size] = tuple(shape[axis] for shape in recorded)
            if sizes:
                self.require_equal(sizes[-1], str(value.shape[-1]))
                sizes[-1] = str(value.shape[-1])
            return sizes
        op = value.op
        assert op is not None
        if is_identity(op):
            return self.sizes(self.graph.value(operand(op, 0, "input")))
        if op.op in SHAPE_OPS:
            return self._shape_op(value, op)
        if op.op in REDUCTIONS:
            return [*self.sizes(self.graph.value(operand(op, 0, "input")))[:-1], "1"]
        element = formula(op)
        if element is None:
            raise NotCovered(f"op {op.op}")
        return self._broadcast(value, [self.graph.value(a) for a in element[1] if reference(a)])

    def _broadcast(self, value: Value, operands: list[Value]) -> list[str]:
        """Sizes of an element op: per axis the operands' common size, each being 1 or that."""
        result: list[str] = []
        rank = len(value.shape)
        for axis in range(rank):
            seen: list[str] = []
            for item in operands:
                own = axis - (rank - len(item.shape))
                if own < 0:
                    continue
                size = self.sizes(item)[own]
                if item.shape[own] == 1 and value.shape[axis] != 1:
                    self.require_equal(size, "1")
                elif size not in seen:
                    seen.append(size)
            result.append(self._common(seen))
        return result

    def _common(self, seen: list[str]) -> str:
        """The size that all of ``seen`` broadcast to, with the checks that they do."""
        seen = [size for size in seen if size != "1"] or ["1"]
        literal = next((size for size in seen if size.isdigit()), None)
        largest = tuple(
            max(values) for values in zip(*(self._known[s] for s in seen if s in self._known), strict=True)
        )
        known = next((size for size in seen if self._known.get(size) == largest), seen[0])
        target = literal or known
        for size in seen:
            same = literal is not None or self._known.get(size) == largest != (1,) * len(largest)
            if size == target:
                continue
            if same:
                self.require_equal(size, target)
            else:
                self.require(f"({size} == 1 || {size} == {target})")
        return target

    def _product(self, sizes: list[str]) -> str:
        text = "(" + " * ".join(sizes) + ")"
        known = [self._known.get(size) for size in sizes]
        if all(values is not None for values in known):
            self._known[text] = tuple(math.prod(column) for column in zip(*known, strict=True))
        return text

    def _shape_op(self, value: Value, op: OpRecord) -> list[str]:
        if op.op == "cat":
            return self._cat(value, op)
        source = self.graph.value(operand(op, 0, "input"))
        if source.op is not None and op.op == "getitem" and source.op.op in ("chunk", "split"):
            base = self.graph.value(operand(source.op, 0, "input"))
            sizes = list(self.sizes(base))
            axis, _ = chunk_start(self.graph, op)
            self.require_equal(sizes[axis], str(base.shape[axis]))
            sizes[axis] = str(value.shape[axis])
            return sizes
        sizes = self.sizes(source)
        if op.op in VIEWS:
            return self._view(sizes, op, source.shape, value.shape)
        if op.op in ("transpose", "permute", "t"):
            order = axis_order(op, len(source.shape))
            return [sizes[axis] for axis in order]
        if op.op == "expand":
            return self._expand(sizes, source.shape, value.shape)
        return self._getitem(sizes, source, value, op)

    def _view(
        self, sizes: list[str], op: OpRecord, before: tuple[int, ...], after: tuple[int, ...]
    ) -> list[str]:
        result = ["1"] * len(after)
        for left, right in shape_groups(op.op, before, after, operand(op, 1, "dim")):
            if not right:
                for axis in left:
                    self.require_equal(sizes[axis], "1")
            elif len(left) == len(right) == 1:
                result[right[0]] = sizes[left[0]]
            elif left and (len(before) - 1 in left or len(after) - 1 in right):
                for axis in left:
                    self.require_equal(sizes[axis], str(before[axis]))
                for axis in right:
                    result[axis] = str(after[axis])
            elif left and len(right) == 1:
                result[right[0]] = self._product([sizes[axis] for axis in left])
            elif left:
                raise NotCovered(f"view {before} -> {after} splits an axis of run-time size")
        return result

    def _expand(self, sizes: list[str], before: tuple[int, ...], after: tuple[int, ...]) -> list[str]:
        lead = len(after) - len(before)
        result = [str(size) for size in after[:lead]]
        for axis, size in enumerate(after[lead:]):
            if before[axis] == size:
                result.append(sizes[axis])
            else:
                self.require_equal(sizes[axis], "1")
                result.append(str(size))
        return result

    def _cat(self, value: Value, op: OpRecord) -> list[str]:
        parts = [self.graph.value(item) for item in list_argument(operand(op, 0, "tensors"))]
        axis = whole(operand(op, 1, "dim", 0), "dim") % len(value.shape)
        result: list[str] = []
        for position in range(len(value.shape)):
            if position == axis:
                for part in parts:
                    self.require_equal(self.sizes(part)[axis], str(part.shape[axis]))
                result.append(str(value.shape[axis]))
            else:
                first = self.sizes(parts[0])[position]
                for part in parts[1:]:
                    self.require_equal(self.sizes(part)[position], first)
                result.append(first)
        return result

    def _getitem(self, sizes: list[str], source: Value, value: Value, op: OpRecord) -> list[str]:
        result: list[str] = []
        for item, axis in subscripts(op, len(source.shape)):
            if axis >= len(sizes):
                raise NotCovered("more subscripts than axes")
            if item is None:
                result.append("1")
            elif isinstance(item, int):
                self.require_equal(sizes[axis], str(source.shape[axis]))
            elif item == [None, None, None]:
                result.append(sizes[axis])
            else:
                self.require_equal(sizes[axis], str(source.shape[axis]))
                result.append(str(value.shape[len(result)]))
        return result

    def source_index(
        self, value: Value, indices: tuple[Index, ...], span: Span
    ) -> tuple[Value, tuple[Index, ...]]:
        """Operand and operand indices of one element of a shape op's result. Raises SplitAt, NotCovered."""
        op = value.op
        assert op is not None
        if op.op == "cat":
            return self._cat_source(value, op, indices, span)
        source = self.graph.value(operand(op, 0, "input"))
        if source.op is not None and op.op == "getitem" and source.op.op in ("chunk", "split"):
            base = self.graph.value(operand(source.op, 0, "input"))
            axis, start = chunk_start(self.graph, op)
            shifted = list(indices)
            shifted[axis] = indices[axis].plus(Index(const=start))
            return base, tuple(shifted)
        if op.op in VIEWS:
            groups = shape_groups(op.op, source.shape, value.shape, operand(op, 1, "dim"))
            return source, self.reshape_index(value, source, groups, indices, span)
        if op.op in ("transpose", "permute", "t"):
            result = [Index()] * len(indices)
            for position, axis in enumerate(axis_order(op, len(source.shape))):
                result[axis] = indices[position]
            return source, tuple(result)
        if op.op == "expand":
            lead = len(value.shape) - len(source.shape)
            return source, tuple(
                index if size == value.shape[lead + axis] else Index()
                for axis, (size, index) in enumerate(zip(source.shape, indices[lead:], strict=True))
            )
        result = [Index()] * len(source.shape)
        position = 0
        for item, axis in subscripts(op, len(source.shape)):
            if item is None:
                position += 1
            elif isinstance(item, int):
                result[axis] = Index(const=item % source.shape[axis])
            else:
                start, _, step = item
                size = source.shape[axis]
                first = 0 if start is None else start + size if start < 0 else min(start, size)
                result[axis] = indices[position].times(step or 1).plus(Index(const=first))
                position += 1
        return source, tuple(result)

    def reshape_index(
        self,
        have: Value,
        want: Value,
        groups: list[tuple[list[int], list[int]]],
        indices: tuple[Index, ...],
        span: Span,
    ) -> tuple[Index, ...]:
        """Indices into ``want`` of the element at ``indices`` of ``have``: the same elements, another shape.

        ``groups`` pairs axes of ``want`` with axes of ``have``.
        """
        result = [Index()] * len(want.shape)
        have_sizes, want_sizes = self.sizes(have), self.sizes(want)
        for left, right in groups:
            if not left or not right:
                continue
            if len(left) == len(right) == 1:
                result[left[0]] = indices[right[0]]
                continue
            if len(want.shape) - 1 in left or len(have.shape) - 1 in right:  # checked to be as recorded
                outer = [str(have.shape[axis]) for axis in right]
                inner = [str(want.shape[axis]) for axis in left]
            else:
                outer, inner = [have_sizes[axis] for axis in right], [want_sizes[axis] for axis in left]
            total = flatten_group([indices[axis] for axis in right], outer)
            parts = unflatten_group(total, inner, span)
            for axis, part in zip(left, parts, strict=True):
                result[axis] = part
        return tuple(result)

    def _cat_source(
        self, value: Value, op: OpRecord, indices: tuple[Index, ...], span: Span
    ) -> tuple[Value, tuple[Index, ...]]:
        axis = whole(operand(op, 1, "dim", 0), "dim") % len(value.shape)
        index = indices[axis]
        if index.terms or index.coef < 0:
            raise NotCovered("a concatenation along an axis that is no row element")
        first, last = index.coef * span.low + index.const, index.coef * (span.high - 1) + index.const
        start = 0
        for item in list_argument(operand(op, 0, "tensors")):
            part = self.graph.value(item)
            stop = start + part.shape[axis]
            if start <= first < stop:
                if last >= stop:
                    raise SplitAt(boundary(index, stop, span))
                shifted = list(indices)
                shifted[axis] = index.plus(Index(const=-start))
                return part, tuple(shifted)
            start = stop
        raise NotCovered("an index beyond a concatenation")


def axis_order(op: OpRecord, rank: int) -> list[int]:
    """Source axis of each result axis of ``transpose``, ``permute`` and ``t``."""
    order = list(range(rank))
    if op.op == "permute":
        first = operand(op, 1, "dims")
        axes = list(first) if isinstance(first, list | tuple) else list(op.args[1:])
        order = [whole(axis, "dim") % rank for axis in axes]
        if sorted(order) != list(range(rank)):
            raise NotCovered(f"permute to {axes}")
        return order
    a, b = (0, 1)
    if op.op == "transpose":
        a, b = whole(operand(op, 1, "dim0"), "dim0") % rank, whole(operand(op, 2, "dim1"), "dim1") % rank
    order[a], order[b] = order[b], order[a]
    return order


def subscripts(op: OpRecord, rank: int) -> list[tuple[Any, int]]:
    """``(item, source axis)`` of a basic subscript, ellipsis filled in; a slice is ``[start, stop, step]``.

    ``None`` (a new axis) has source axis -1. Raises NotCovered for tensor or boolean subscripts.
    """
    if len(op.args) != 2:
        raise NotCovered(f"a subscript with {len(op.args)} arguments")
    raw = op.args[1]
    items = list(raw) if isinstance(raw, list | tuple) else [raw]
    used = sum(1 for item in items if item is not None and item != {"ellipsis": True})
    full = {"slice": [None, None, None]}
    where = next((p for p, item in enumerate(items) if item == {"ellipsis": True}), None)
    fill = [full] * (rank - used)
    items = items + fill if where is None else items[:where] + fill + items[where + 1 :]
    result: list[tuple[Any, int]] = []
    axis = 0
    for item in items:
        if item is None:
            result.append((None, -1))
            continue
        if isinstance(item, dict) and "slice" in item:
            if any(part is not None and not isinstance(part, int) for part in item["slice"]):
                raise NotCovered("a slice with bounds that are no constants")
            if item["slice"][2] not in (None, 1) and item["slice"][2] < 0:
                raise NotCovered("a slice with a negative step")
            start, stop, step = item["slice"]
            trivial = start in (None, 0) and stop is None and step in (None, 1)
            result.append(([None, None, None] if trivial else [start, stop, step], axis))
        elif isinstance(item, int) and not isinstance(item, bool):
            result.append((item, axis))
        else:
            raise NotCovered(f"subscript {item!r}")
        axis += 1
    return result


def chunk_start(graph: Graph, op: OpRecord) -> tuple[int, int]:
    """Axis and first element of piece ``op.args[1]`` of a ``chunk`` or ``split``."""
    source = graph.value(operand(op, 0, "input")).op
    piece = operand(op, 1, "index")
    assert source is not None
    if not isinstance(piece, int):
        raise NotCovered("a chunk taken by something that is no number")
    base = graph.value(operand(source, 0, "input"))
    axis = whole(operand(source, 2, "dim", 0), "dim") % len(base.shape)
    size = base.shape[axis]
    if source.op == "chunk":
        count = whole(operand(source, 1, "chunks"), "number of chunks")
        each = -(-size // count)
        return axis, each * (piece % -(-size // each))
    lengths = operand(source, 1, "split_size_or_sections", operand(source, 1, "split_size"))
    if not isinstance(lengths, list | tuple):
        lengths = whole(lengths, "split size")
        return axis, lengths * (piece % -(-size // lengths))
    return axis, sum(lengths[: piece % len(lengths)])

"""Writes one nest of a row program as a C++ function over rows ``[begin, end)``.

Element values are pulled: each output asks its op, which asks its operands, down to loads. What does not depend
on the element index ``i`` (statistics, scales) is computed once a row; a reduction is a loop of its own; a value
named in ``buffered`` is computed once into a row buffer and read back by every later loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from optimizer.policies.catalog.graph import Graph, NotCovered, Value, operand, reference
from optimizer.policies.catalog.row_index import Index, Span, SplitAt, shape_groups
from optimizer.policies.catalog.row_ops import FLOATS, REDUCTIONS, formula, is_identity, number, reduction
from optimizer.policies.catalog.row_shapes import SHAPE_OPS, Shapes, axis_order
from optimizer.policies.catalog.rows import Nest

SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "bool": "bool"}
C_TYPE = {"float32": "float", "bfloat16": "kg_bf16", "float16": "_Float16", "bool": "bool"}
_RESERVED = {
    "in",
    "w",
    "out",
    "i",
    "row",
    "begin",
    "end",
    "float",
    "double",
    "auto",
    "new",
    "and",
    "or",
    "not",
}
_PIECE = 64  # a loop split into more pieces than this is not a row program


@dataclass
class _Loop:
    span: Span
    lines: list[str] = field(default_factory=list)
    memo: dict[tuple[str, tuple[Index, ...]], str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # of variables local to the loop: free again after it
    scalar: bool = False  # some access has a stride: no vectors


class NestWriter:
    """Generates the function of one nest; use :meth:`write` once."""

    def __init__(
        self,
        graph: Graph,
        nest: Nest,
        shapes: Shapes,
        buffered: frozenset[str],
        lanes: int,
        unroll: int = 1,
    ) -> None:
        self.graph, self.nest, self.shapes = graph, nest, shapes
        self.lanes, self.unroll = lanes, unroll
        self.buffered = buffered
        self.domain = graph.values[nest.domain]
        self.variables = [f"v{axis}" for axis in range(len(self.domain.shape) - 1)]
        self.lines: list[str] = []
        self.memo: dict[tuple[str, tuple[Index, ...]], str] = {}
        self.names: set[str] = set(_RESERVED) | set(self.variables)
        self.pointers: dict[tuple[str, int, tuple[Index, ...]], str] = {}
        self.buffers: dict[tuple[str, tuple[Index, ...]], str] = {}

    def write(self, function: str, target: str | None = None) -> str:
        """C++ text of ``static void function(in, w, out, begin, end)``; with ``target`` rows go to that buffer."""
        if target:
            self.names.add(target)
        length = self.domain.shape[-1]
        lead = tuple(Index(terms=((variable, 1),)) for variable in self.variables)
        stores: list[tuple[str, Value, Value, int]] = []
        for position, returned, base in self.nest.outputs:
            stores.append(("", self.graph.values[returned], self.graph.values[base], position))

        def body(loop: _Loop) -> None:
            for _, returned, base, position in stores:
                indices = (*lead, Index(coef=1))
                value = self.element(base, indices, loop)
                where = self._store(returned, base, position, indices, loop, target)
                loop.lines.append(f"store({where}, {value});")

        self.loop(length, body)
        sizes = self.shapes.sizes(self.domain)
        head = [f"const int64_t n{axis} = {sizes[axis]};" for axis in range(len(self.variables))]
        start, step = ["int64_t rest = begin;"], []
        for axis in reversed(range(len(self.variables))):
            start.append(f"int64_t v{axis} = rest % n{axis};")
            start.append(f"rest /= n{axis};")
        for depth, axis in enumerate(reversed(range(len(self.variables)))):
            if axis == 0:
                step.append("  " * depth + f"++v{axis};")
            else:
                step.append("  " * depth + f"if (++v{axis} == n{axis}) {{")
                step.append("  " * depth + f"  v{axis} = 0;")
        step += ["  " * depth + "}" for depth in reversed(range(max(len(self.variables) - 1, 0)))]
        parameter = f", {C_TYPE[self.domain.dtype]}* {target}" if target else ""
        text = [f"// Rows of {self.domain.name}, {length} elements each."]
        text.append(
            f"static void {function}(const kg_tensor* in, const kg_tensor* w, const kg_tensor* out, "
            f"int64_t begin, int64_t end{parameter}) {{"
        )
        text += [f"  {line}" for line in head + (start if self.variables else [])]
        text += ["  for (int64_t row = begin; row < end; ++row) {"]
        text += [f"    {line}" for line in self.lines + step]
        text += ["  }", "}"]
        return "\n".join(text)

    def rows(self) -> str:
        """C expression of the nest's number of rows."""
        sizes = self.shapes.sizes(self.domain)[:-1]
        return " * ".join(sizes) if sizes else "1"

    def loop(self, length: int, body: Callable[[_Loop], None]) -> None:
        """Write a loop over ``[0, length)``, split wherever the body's indices stop being affine."""
        pending, done = [Span(0, length)], 0
        while pending:
            span = pending.pop(0)
            loop = _Loop(span)
            try:
                body(loop)
            except SplitAt as split:
                self.names -= loop.names
                pending[:0] = [Span(span.low, split.at), Span(split.at, span.high)]
                done += 1
                if done > _PIECE:
                    raise NotCovered("a row falls into too many pieces") from split
                continue
            self._emit(loop)
            self.names -= loop.names

    def _emit(self, loop: _Loop) -> None:
        """The loop in vectors as far as they go, and what is left one element at a time."""
        low, high = loop.span.low, loop.span.high
        whole = low if loop.scalar else high - (high - low) % self.lanes
        if whole > low:
            if self.unroll > 1:
                self.lines.append(f"#pragma GCC unroll {self.unroll}")
            self.lines.append(f"for (int i = {low}; i < {whole}; i += LANES) {{")
            self.lines += [f"  {line.format(type='vec', load='load_vec')}" for line in loop.lines]
            self.lines.append("}")
        if whole < high:
            self.lines.append(f"for (int i = {whole}; i < {high}; ++i) {{")
            self.lines += [f"  {line.format(type='float', load='load_one')}" for line in loop.lines]
            self.lines.append("}")

    def element(self, value: Value, indices: tuple[Index, ...], loop: _Loop | None, inside: str = "") -> str:
        """Name of a float variable holding one element. ``inside``: value whose own buffer is being filled."""
        if all(index.invariant for index in indices):
            loop = None
        memo = self.memo if loop is None else loop.memo
        key = (value.name, indices)
        if key in memo:
            return memo[key]
        if value.dtype not in FLOATS and not (value.dtype == "bool" and value.kind == "input"):
            raise NotCovered(f"{value.name} has dtype {value.dtype}")
        if loop is not None and value.name in self.buffered and value.name != inside:
            name = self._from_buffer(value, indices, loop)
        elif value.op is None:
            name = self._load(value, indices, loop)
        else:
            name = self._compute(value, indices, loop, inside)
        memo[key] = name
        return name

    def _compute(self, value: Value, indices: tuple[Index, ...], loop: _Loop | None, inside: str) -> str:
        op = value.op
        assert op is not None
        self.shapes.sizes(value)
        if is_identity(op):
            source = self.graph.value(operand(op, 0, "input"))
            name = self.element(source, indices, loop, inside)
            if value.dtype in (source.dtype, "float32"):
                return name
            return self._assign(value.name, f"round_{SHORT[value.dtype]}({name})", loop)
        if op.op in SHAPE_OPS:
            span = loop.span if loop is not None else Span(0, 1)
            source, mapped = self.shapes.source_index(value, indices, span)
            return self.element(source, mapped, loop, inside)
        if op.op in REDUCTIONS:
            return self._reduce(value, indices)
        known = formula(op)
        if known is None:
            raise NotCovered(f"op {op.op}")
        text, arguments = known
        names = []
        for argument in arguments:
            if reference(argument) is None:
                names.append(number(argument))
                continue
            item = self.graph.value(argument)
            own = indices[len(indices) - len(item.shape) :] if item.shape else ()
            lead = len(value.shape) - len(item.shape)
            own = tuple(
                Index() if size == 1 and value.shape[lead + axis] != 1 else index
                for axis, (size, index) in enumerate(zip(item.shape, own, strict=True))
            )
            names.append(self.element(item, own, loop, inside))
        expression = text.format(*names)
        if value.dtype != "float32":
            expression = f"round_{SHORT[value.dtype]}({expression})"
        return self._assign(value.name, expression, loop)

    def _reduce(self, value: Value, indices: tuple[Index, ...]) -> str:
        op = value.op
        assert op is not None
        if not all(index.invariant for index in indices):
            raise NotCovered("a statistic that changes within a row")
        source = self.graph.value(operand(op, 0, "input"))
        kind = reduction(op, len(source.shape))
        length = source.shape[-1]
        total = self._name(f"{value.name}_sum")
        self.lines.append(f"vec {total}_vec = {{}};")
        self.lines.append(f"float {total} = 0.0f;")

        def body(loop: _Loop) -> None:
            item = self.element(source, (*indices[:-1], Index(coef=1)), loop)
            loop.lines.append(f"accumulate({total}_vec, {total}, {item});")

        self.loop(length, body)
        self.lines.append(f"{total} += total({total}_vec);")
        expression = f"{total} / {length}.0f" if kind == "mean" else total
        if value.dtype != "float32":
            expression = f"round_{SHORT[value.dtype]}({expression})"
        return self._assign(value.name, expression, None)

    def _from_buffer(self, value: Value, indices: tuple[Index, ...], loop: _Loop) -> str:
        lead = indices[:-1]
        if not all(index.invariant for index in lead) or indices[-1].terms:
            raise NotCovered("a buffered value is read across rows")
        key = (value.name, lead)
        if key not in self.buffers:
            name = self._name(f"{value.name}_row")
            self.lines.append(f"alignas(64) float {name}[{value.shape[-1]}];")

            def body(fill: _Loop) -> None:
                item = self.element(value, (*lead, Index(coef=1)), fill, inside=value.name)
                fill.lines.append(f"store({name} + i, {item});")

            self.loop(value.shape[-1], body)
            self.buffers[key] = name
        return self._access(value.name, self.buffers[key], indices[-1], "", loop)

    def _load(self, value: Value, indices: tuple[Index, ...], loop: _Loop | None) -> str:
        self.shapes.sizes(value)
        tensor = f"{'in' if value.kind == 'input' else 'w'}[{value.position}]"
        if not value.shape:
            return self._assign(value.name, f"load_one((const {C_TYPE[value.dtype]}*){tensor}.data)", None)
        self.shapes.require(f"{tensor}.dtype == KG_{SHORT[value.dtype].upper()}")
        last = indices[-1]
        row = (*indices[:-1], Index(terms=last.terms))
        key = (value.kind, value.position, row)
        if key not in self.pointers:
            name = self._name(f"{value.name}_at")
            offset = [
                f"({index.text()}) * step({tensor}, {axis})"
                for axis, index in enumerate(row)
                if not index.is_zero
            ]
            kind = C_TYPE[value.dtype]
            base = f"(const {kind}*){tensor}.data"
            self.lines.append(f"const {kind}* {name} = {' + '.join([base, *offset])};")
            self.pointers[key] = name
        stride = ""
        axis = len(value.shape) - 1
        if self._strided(value):
            stride = f"{tensor}.stride[{axis}]"
        else:
            self.shapes.require(f"({tensor}.size[{axis}] == 1 || {tensor}.stride[{axis}] == 1)")
        return self._access(value.name, self.pointers[key], Index(last.coef, last.const), stride, loop)

    def _access(self, wanted: str, pointer: str, at: Index, stride: str, loop: _Loop | None) -> str:
        """A variable with the element ``at`` of a row; not one of unit steps keeps its loop scalar."""
        text = at.element_part()
        if stride:
            text = f"({text}) * {stride}"
        if loop is None:
            return self._assign(wanted, f"load_one({pointer} + {text})", None)
        if at.coef != 1 or stride:
            loop.scalar = True
        return self._assign(wanted, f"{{load}}({pointer} + {text})", loop)

    def _strided(self, value: Value) -> bool:
        """True if some workload passes this input with elements of a row apart from each other."""
        if value.kind != "input":
            return False
        return any(
            workload.inputs[value.position].stride[-1] != 1 and workload.inputs[value.position].shape[-1] != 1
            for workload in self.graph.spec.workloads
        )

    def _store(
        self,
        returned: Value,
        base: Value,
        position: int,
        indices: tuple[Index, ...],
        loop: _Loop,
        target: str | None,
    ) -> str:
        if target is not None:
            return f"{target} + (row - begin) * {base.shape[-1]} + i"
        sizes = self.shapes.sizes(returned)
        tensor = f"out[{position}]"
        self.shapes.require(f"{tensor}.ndim == {len(returned.shape)}")
        self.shapes.require(f"{tensor}.dtype == KG_{SHORT[returned.dtype].upper()}")
        for axis, size in enumerate(sizes):
            self.shapes.require(f"{tensor}.size[{axis}] == {size}")
        mapped = self._push(returned, base, indices, loop.span)
        last = mapped[-1]
        row = (*mapped[:-1], Index(terms=last.terms))
        key = ("out", position, row)
        if key not in self.pointers:
            name = self._name(f"{returned.name}_to")
            kind = C_TYPE[returned.dtype]
            offset = [
                f"({index.text()}) * {tensor}.stride[{axis}]"
                for axis, index in enumerate(row)
                if not index.is_zero
            ]
            self.lines.append(f"{kind}* {name} = {' + '.join([f'({kind}*){tensor}.data', *offset])};")
            self.pointers[key] = name
        at = Index(last.coef, last.const).element_part()
        strides = [
            w.outputs[position].stride
            for w in self.graph.spec.workloads
            if w.outputs[position].shape[-1] != 1
        ]
        axis = len(returned.shape) - 1
        if any(stride[-1] != 1 for stride in strides):
            loop.scalar = True
            return f"{self.pointers[key]} + ({at}) * {tensor}.stride[{axis}]"
        self.shapes.require(f"({tensor}.size[{axis}] == 1 || {tensor}.stride[{axis}] == 1)")
        if last.coef != 1:
            loop.scalar = True
        return f"{self.pointers[key]} + {at}"

    def _push(
        self, returned: Value, base: Value, indices: tuple[Index, ...], span: Span
    ) -> tuple[Index, ...]:
        """Indices into ``returned`` of the element at ``indices`` of ``base``."""
        if returned.name == base.name:
            return indices
        op = returned.op
        assert op is not None
        source = self.graph.value(operand(op, 0, "input"))
        inner = self._push(source, base, indices, span)
        if is_identity(op):
            return inner
        if op.op in ("transpose", "permute", "t"):
            return tuple(inner[axis] for axis in axis_order(op, len(inner)))
        groups = shape_groups(op.op, source.shape, returned.shape, operand(op, 1, "dim"))
        turned = [(right, left) for left, right in groups]
        return self.shapes.reshape_index(source, returned, turned, inner, span)

    def _assign(self, wanted: str, expression: str, loop: _Loop | None) -> str:
        name = self._name(wanted)
        if loop is not None:
            loop.names.add(name)
        if loop is None:
            self.lines.append(f"const float {name} = {expression};")
        else:
            loop.lines.append(f"const {{type}} {name} = {expression};")
        return name

    def _name(self, wanted: str) -> str:
        stem = re.sub(r"\W", "_", wanted)
        if stem[0].isdigit():
            stem = f"v_{stem}"
        name, count = stem, 1
        while name in self.names:
            count += 1
            name = f"{stem}__{count}"
        self.names.add(name)
        return name

"""Turn the sizes baked into a captured graph back into expressions, so that one program serves all workloads.

A capture with static shapes says ``view(1, 32, -1, 128)``; the program should say
``view(x.shape[0], x.shape[1], -1, 128)``. Candidates for each size are tried in order of plausibility and must be
right in every workload of the task at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import fx

from extractor.graph import StepDims, op_name, shape_of
from extractor.regions import Region


class Inexpressible(Exception):
    """A size that no expression over the operands explains in all workloads. Never reaches a user."""


@dataclass(frozen=True)
class Variant:
    """One occurrence of the operator: a region with the sizes of the step it was found in."""

    region: Region
    dims: StepDims


class SizeWriter:
    """Writes the size arguments of one operator's nodes. ``names`` maps the nodes of the first variant to names."""

    def __init__(self, variants: Sequence[Variant], names: dict[fx.Node, str], fixed: set[fx.Node]) -> None:
        self._variants = variants
        self._names = names
        self._fixed = fixed  # nodes of the first variant computed from weights alone: their sizes never vary
        self._index = {node: index for index, node in enumerate(variants[0].region.nodes)}
        self._inputs = {node: index for index, node in enumerate(variants[0].region.inputs)}

    def sizes(self, node: fx.Node, sizes: Sequence[object], operand: fx.Node | None) -> list[str]:
        """Expressions for ``sizes``, an argument list of ``node``; ``operand`` is the tensor being reshaped.

        Raises:
            Inexpressible: a size varies between workloads in a way nothing explains.
        """
        written: list[str | None] = []
        literal = self._splits_from(node, sizes, operand)
        leading = True  # still copying the operand's leading axes
        for place, value in enumerate(sizes):
            if isinstance(value, fx.Node):
                written.append(self._names[value])
                leading = False
                continue
            if not isinstance(value, int):
                raise Inexpressible(f"{op_name(node)} takes {value!r} as a size")
            if place >= literal:
                written.append(str(value))
                continue
            expression = self._one(node, place, value, len(sizes), operand, leading)
            leading = leading and expression is not None and expression.endswith(f".shape[{place}]")
            written.append(expression)
        missing = [place for place, expression in enumerate(written) if expression is None]
        if len(missing) == 1 and -1 not in sizes and op_name(node) in ("view", "reshape"):
            written[missing.pop()] = "-1"
        for place in missing:
            if len(set(self._values(node, place, len(sizes)))) > 1:
                raise Inexpressible(
                    f"size {sizes[place]} of {op_name(node)} depends on more than its operands"
                )
            written[place] = str(sizes[place])
        return [expression for expression in written if expression is not None]

    def _splits_from(self, node: fx.Node, sizes: Sequence[object], operand: fx.Node | None) -> int:
        """From which place on the sizes of a view split the operand's last axis, and are constants of the model."""
        count = len(sizes)
        if operand is None or op_name(node) not in ("view", "reshape") or operand in self._fixed:
            return count
        rank = len(shape_of(operand))
        columns = [self._values(node, place, count) for place in range(count)]
        constant = [len(set(column)) == 1 for column in columns]
        leading = 0
        while leading < min(rank, count) and columns[leading] == self._axis(operand, leading):
            leading += 1
        if leading == rank - 1 and count > rank and all(constant[leading:]):
            return leading
        last = self._axis(operand, rank - 1) if rank else []
        for place in range(count - 2, 0, -1):
            factors = [column[0] for column in columns[place:]]
            if not all(constant[place:]) or not all(isinstance(f, int) and f > 0 for f in factors):
                continue
            product = prod(f for f in factors if isinstance(f, int))
            if product > 1 and [product] * len(last) == last:
                return place
        return count

    def _one(
        self, node: fx.Node, place: int, value: int, count: int, operand: fx.Node | None, leading: bool
    ) -> str | None:
        values = self._values(node, place, count)
        constant = len(set(values)) == 1
        if value == -1 and constant:
            return "-1"
        if operand is not None and operand not in self._fixed:
            rank = len(shape_of(operand))
            axes = [place] if leading else []
            axes += [] if constant and value == 1 else [place - count + rank]
            for axis in axes:
                if 0 <= axis < rank and self._axis(operand, axis) == values:
                    return f"{self._names[operand]}.shape[{axis}]"
        # A 1 is a 1, except where a weight is expanded: there it may be a batch of one.
        stretched = op_name(node) == "expand" and operand in self._fixed
        if constant and (not self._suspicious(value, place) or (value == 1 and not stretched)):
            return str(value)
        own = [operand] if operand is not None and operand not in self._fixed else []
        for candidate in [*own, *self._inputs]:
            for axis in range(len(shape_of(candidate))):
                if self._axis(candidate, axis) == values:
                    return f"{self._names[candidate]}.shape[{axis}]"
        if operand is not None:
            shapes = self._shapes(operand)
            for axis in range(len(shapes[0]) - 1):
                if [shape[axis] * shape[axis + 1] for shape in shapes] == values:
                    name = self._names[operand]
                    return f"{name}.shape[{axis}] * {name}.shape[{axis + 1}]"
        return None

    def _suspicious(self, value: int, place: int) -> bool:
        """Whether a constant size could be the batch or a length, as far as its place and the workloads tell."""
        dims = [variant.dims for variant in self._variants]
        if place == 0:
            varying = zip(*((d.batch, d.rows, d.query, d.cache_len) for d in dims), strict=True)
        else:  # the batch leads
            varying = zip(*((d.query, d.cache_len) for d in dims), strict=True)
        return any(set(column) == {value} for column in varying)

    def _values(self, node: fx.Node, place: int, count: int) -> list[object]:
        index = self._index[node]
        return [size_arguments(v.region.nodes[index])[place] for v in self._variants]

    def _shapes(self, node: fx.Node) -> list[tuple[int, ...]]:
        if node in self._index:
            return [shape_of(v.region.nodes[self._index[node]]) for v in self._variants]
        if node in self._inputs:
            return [shape_of(v.region.inputs[self._inputs[node]]) for v in self._variants]
        return [shape_of(node)] * len(self._variants)

    def _axis(self, node: fx.Node, axis: int) -> list[int]:
        return [shape[axis] for shape in self._shapes(node)]


def size_arguments(node: fx.Node) -> tuple[object, ...]:
    """The size arguments of a shape operator, unpacked: of ``view(x, (a, b))`` and ``view(x, a, b)`` alike."""
    rest = node.args if op_name(node) in ("zeros", "ones", "empty", "full") else node.args[1:]
    if rest and isinstance(rest[0], tuple | list):
        return tuple(rest[0])
    return tuple(rest)

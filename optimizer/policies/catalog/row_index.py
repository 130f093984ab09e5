"""Index algebra of the row-wise generator: where the element i of a result row comes from.

A result row is walked by one loop variable ``i``; everything before the last axis is a *row variable* that is
constant inside the loop. An :class:`Index` is ``coef * i + const + sum(factor * expr)`` over row variables.
Shape ops map result indices to operand indices; where a map is not affine over the whole range of ``i`` (a
concatenation, the halves of an interleaved table) it raises :class:`SplitAt` and the loop is split there.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.policies.catalog.graph import NotCovered


class SplitAt(Exception):
    """The loop over ``i`` must be split at this value for the indices to be affine."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


@dataclass(frozen=True)
class Span:
    """Half-open range of ``i`` of the loop being written."""

    low: int
    high: int


@dataclass(frozen=True)
class Index:
    """``coef * i + const + sum(factor * expr for expr, factor in terms)``."""

    coef: int = 0
    const: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    @property
    def invariant(self) -> bool:
        """True if it does not depend on ``i``."""
        return self.coef == 0

    @property
    def is_zero(self) -> bool:
        return self == Index()

    def plus(self, other: Index) -> Index:
        terms = dict(self.terms)
        for expr, factor in other.terms:
            terms[expr] = terms.get(expr, 0) + factor
        return Index(self.coef + other.coef, self.const + other.const, tuple(sorted(terms.items())))

    def times(self, factor: int) -> Index:
        return Index(self.coef * factor, self.const * factor, tuple((e, f * factor) for e, f in self.terms))

    def row_part(self) -> str:
        """C expression of everything but ``coef * i + const``; empty if there is nothing."""
        return " + ".join(expr if factor == 1 else f"{expr} * {factor}" for expr, factor in self.terms)

    def element_part(self) -> str:
        """C expression of ``coef * i + const``."""
        if self.coef == 0:
            return str(self.const)
        walk = "i" if self.coef == 1 else f"{self.coef} * i"
        if self.const == 0:
            return walk
        return f"{walk} {'+' if self.const > 0 else '-'} {abs(self.const)}"

    def text(self) -> str:
        """The whole as a C expression."""
        row = self.row_part()
        if not row:
            return self.element_part()
        return row if self.coef == 0 and self.const == 0 else f"{row} + {self.element_part()}"

    def divmod(self, divisor: int, span: Span) -> tuple[Index, Index]:
        """Quotient and remainder by a positive constant. Raises SplitAt or NotCovered."""
        if divisor == 1:
            return self, Index()
        whole = tuple((e, f // divisor) for e, f in self.terms if f % divisor == 0)
        rest = tuple((e, f) for e, f in self.terms if f % divisor)
        if rest:
            if self.coef:
                raise NotCovered("an index mixes row variables and the loop variable")
            text = f"({self.text()})"
            return Index(terms=((f"({text} / {divisor})", 1),)), Index(terms=((f"({text} % {divisor})", 1),))
        if self.coef % divisor == 0:
            quotient = Index(self.coef // divisor, self.const // divisor, whole)
            return quotient, Index(0, self.const % divisor)
        first = self.coef * span.low + self.const
        last = self.coef * (span.high - 1) + self.const
        if first // divisor == last // divisor:
            q = first // divisor
            return Index(0, q, whole), Index(self.coef, self.const - q * divisor)
        if self.coef < 0:
            raise NotCovered("a reversed index crosses a boundary")
        raise SplitAt(boundary(self, (first // divisor + 1) * divisor, span))


def boundary(index: Index, value: int, span: Span) -> int:
    """Smallest ``i`` inside the span at which ``coef * i + const`` reaches ``value``."""
    at = -((index.const - value) // index.coef)
    if not span.low < at < span.high:
        raise NotCovered("an index boundary lies outside its loop")
    return at


def view_groups(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Pair the axes of a reshape: each group of axes of ``before`` holds what its group of ``after`` holds.

    Axes of size 1 are matched from the left; where that guess is wrong for another workload, the generated
    run-time size checks decline it.

    >>> view_groups((2, 3, 8), (2, 3, 2, 4))
    [([0], [0]), ([1], [1]), ([2], [2, 3])]
    """
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        a = before[i] if i < len(before) else None
        b = after[j] if j < len(after) else None
        if a is not None and a == b:
            groups.append(([i], [j]))
            i, j = i + 1, j + 1
        elif a == 1:
            groups.append(([i], []))
            i += 1
        elif b == 1:
            groups.append(([], [j]))
            j += 1
        else:
            if a is None or b is None:
                raise NotCovered(f"cannot pair the axes of a view {before} -> {after}")
            left, right = [i], [j]
            i, j = i + 1, j + 1
            while a != b:
                if a < b:
                    if i >= len(before):
                        raise NotCovered(f"cannot pair the axes of a view {before} -> {after}")
                    a, left, i = a * before[i], [*left, i], i + 1
                else:
                    if j >= len(after):
                        raise NotCovered(f"cannot pair the axes of a view {before} -> {after}")
                    b, right, j = b * after[j], [*right, j], j + 1
            groups.append((left, right))
    return groups


def shape_groups(
    name: str, before: tuple[int, ...], after: tuple[int, ...], axis: int | None
) -> list[tuple[list[int], list[int]]]:
    """Axis groups of any view op; ``unsqueeze`` and ``squeeze`` say themselves which axis comes or goes."""
    if axis is None or name not in ("unsqueeze", "squeeze"):
        return view_groups(before, after)
    longer, shorter = (after, before) if name == "unsqueeze" else (before, after)
    axis %= len(longer)
    if len(longer) == len(shorter):  # squeeze of an axis longer than 1 does nothing
        return [([i], [i]) for i in range(len(before))]
    kept = [i for i in range(len(longer)) if i != axis]
    pairs: list[tuple[list[int], list[int]]] = []
    for i, j in zip(range(len(shorter)), kept, strict=True):
        pairs.append(([i], [j]) if name == "unsqueeze" else ([j], [i]))
    pairs.append(([], [axis]) if name == "unsqueeze" else ([axis], []))
    return pairs


def flatten_group(indices: list[Index], sizes: list[str]) -> Index:
    """Linear index of ``indices`` over axes whose sizes are C expressions (literals for static axes)."""
    total = Index()
    for index, size in zip(indices, sizes, strict=True):
        if size.isdigit():
            total = total.times(int(size)).plus(index)
        elif total.is_zero:
            total = index
        else:
            if total.coef:
                raise NotCovered("the loop variable is not the innermost axis of a merged group")
            total = Index(terms=((f"(({total.text()}) * {size})", 1),)).plus(index)
    return total


def unflatten_group(total: Index, sizes: list[str], span: Span) -> list[Index]:
    """Inverse of :func:`flatten_group`."""
    result: list[Index] = []
    for size in reversed(sizes[1:]):
        if size.isdigit():
            total, rest = total.divmod(int(size), span)
        else:
            if total.coef:
                raise NotCovered("the loop variable crosses an axis of run-time size")
            text = f"({total.text()})"
            rest = Index(terms=((f"({text} % {size})", 1),))
            total = Index(terms=((f"({text} / {size})", 1),))
        result.append(rest)
    return [total, *reversed(result)]

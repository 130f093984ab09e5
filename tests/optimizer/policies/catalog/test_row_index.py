"""The index algebra: affine maps, where loops are split, how views pair axes."""

from __future__ import annotations

import pytest

from optimizer.policies.catalog.graph import NotCovered
from optimizer.policies.catalog.row_index import (
    Index,
    Span,
    SplitAt,
    flatten_group,
    shape_groups,
    unflatten_group,
    view_groups,
)


def test_divmod_splits_where_the_quotient_changes() -> None:
    walk = Index(coef=1)
    with pytest.raises(SplitAt) as split:
        walk.divmod(8, Span(0, 16))
    assert split.value.at == 8
    assert walk.divmod(8, Span(8, 16)) == (Index(const=1), Index(coef=1, const=-8))


def test_divmod_of_row_variables() -> None:
    index = Index(coef=1, terms=(("v1", 32),))
    quotient, rest = index.divmod(32, Span(0, 32))
    assert quotient == Index(terms=(("v1", 1),))
    assert rest == Index(coef=1)
    with pytest.raises(NotCovered):
        Index(coef=1, terms=(("v1", 3),)).divmod(32, Span(0, 32))


@pytest.mark.parametrize("at", range(24))
def test_flatten_and_unflatten_are_inverse(at: int) -> None:
    sizes = ["2", "3", "4"]
    parts = unflatten_group(Index(const=at), sizes, Span(0, 1))
    assert [part.const for part in parts] == [at // 12, at // 4 % 3, at % 4]
    assert flatten_group(parts, sizes) == Index(const=at)


def test_views_pair_axes_from_the_left() -> None:
    assert view_groups((4, 1, 6), (4, 1, 2, 3)) == [([0], [0]), ([1], [1]), ([2], [2, 3])]
    assert view_groups((2, 3, 4), (6, 4)) == [([0, 1], [0]), ([2], [1])]
    with pytest.raises(NotCovered):
        view_groups((5,), (2, 3))


def test_unsqueeze_names_its_axis() -> None:
    assert shape_groups("unsqueeze", (1, 1, 8), (1, 1, 1, 8), 1) == [
        ([0], [0]),
        ([1], [2]),
        ([2], [3]),
        ([], [1]),
    ]

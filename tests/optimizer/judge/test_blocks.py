"""Blocks cover every element once, keep rows whole, and find an element in a tensor of more than 2^31."""

from typing import Any

import pytest
import torch

from extractor.schema import Tolerance
from optimizer.judge import blocks as module
from optimizer.judge import tolerance
from optimizer.judge.blocks import as_rows, blocks, first_true
from optimizer.judge.settings import Profile
from optimizer.judge.tolerance import Allowance, Truth

_PAST_32_BITS = (1 << 31) + 40


@pytest.mark.parametrize(
    "shape", [(7,), (100,), (3, 50), (50, 3), (4, 5, 6), (2, 1, 40), (9, 1), (1,), (2, 3, 2, 20)]
)
@pytest.mark.parametrize("size", [1, 8, 64, 1000])
def test_every_element_lies_in_one_block(shape: tuple[int, ...], size: int) -> None:
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape)
    found = [block.of(tensor).reshape(-1) for block in blocks(tensor, size)]
    assert torch.equal(torch.cat(found), tensor.reshape(-1))
    for block in blocks(tensor, size):
        part = block.of(tensor)
        first = tuple(0 for _ in part.shape)
        assert int(tensor[tuple(block.place(first))]) == int(part[first])


def test_blocks_are_small_and_of_like_size() -> None:
    sizes = [block.of(torch.empty(1001)).numel() for block in blocks(torch.empty(1001), 1000)]
    assert sizes == [501, 500]
    assert all(block.of(torch.empty(40, 30)).numel() <= 64 for block in blocks(torch.empty(40, 30), 64))


def test_empty_tensors_have_none_and_scalars_one() -> None:
    assert list(blocks(torch.empty(3, 0))) == []
    (block,) = blocks(torch.tensor(5.0))
    assert block.of(torch.tensor(5.0)) == 5.0
    assert block.place(()) == []


def test_views_of_any_stride_are_not_copied() -> None:
    view = torch.arange(60).reshape(3, 4, 5).permute(2, 0, 1)[1:, :, ::2]
    for block in blocks(view, 4):
        part = block.of(view)
        assert part.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()


def test_short_rows_are_taken_together() -> None:
    assert as_rows(torch.empty(6, 3)).shape == (1, 18)
    assert as_rows(torch.empty(2, 6, 16)).shape == (12, 16)


@pytest.mark.parametrize("index", [(0, 0), (2, 3), (4, 6)])
def test_first_true(index: tuple[int, int]) -> None:
    mask = torch.zeros(5, 7, dtype=torch.bool)
    assert first_true(mask) is None
    mask[index] = True
    mask[4, 6] = True
    assert first_true(mask) == index


def test_an_element_past_32_bits_is_found() -> None:
    """A broadcast answer of more than 2^31 elements that takes no memory; one copy of it is wrong far behind."""
    exact = torch.zeros(1, dtype=torch.int8).expand(_PAST_32_BITS // 64, 64)
    got = torch.zeros(64, dtype=torch.int8).as_strided(exact.shape, (0, 1))
    last = list(blocks(got))[-1]
    assert last.place((last.stop - last.start - 1, 63)) == [_PAST_32_BITS // 64 - 1, 63]
    assert sum(block.stop - block.start for block in blocks(got)) == _PAST_32_BITS // 64


@pytest.mark.slow
def test_a_wrong_element_past_32_bits_is_named() -> None:
    eager = torch.zeros(1, dtype=torch.int8).expand(_PAST_32_BITS)
    got = torch.zeros(_PAST_32_BITS, dtype=torch.int8)
    got[-3] = 1
    comparison = Truth(eager, eager).compare(got, Profile.STRICT, Tolerance())
    assert f"[{_PAST_32_BITS - 3}]" in comparison.problem


def test_a_comparison_takes_little_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest tensor it makes is a block's, at fp64."""
    monkeypatch.setattr(module, "BLOCK", 1 << 12)
    monkeypatch.setattr(tolerance, "_CHUNK", 1 << 12)
    monkeypatch.setattr(tolerance, "_HUGE", 1 << 12)
    eager = torch.randn(64, 4096, generator=torch.Generator().manual_seed(0)).bfloat16()
    truth = Truth(eager.float(), eager)
    compared = {tensor.untyped_storage().data_ptr() for tensor in (truth.exact, truth.eager)}
    made = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in compared:
                made.append(result.untyped_storage().nbytes())
            return result

    with Watch():
        for profile in Profile:
            assert truth.compare(eager, profile, Tolerance()).problem == ""
            assert Allowance.of([truth], profile).problem(eager[None], eager[None]) == ""
    assert max(made) <= (1 << 12) * 8

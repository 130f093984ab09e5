"""Laws: what is measured from a recorded tensor, and that what is drawn from it obeys it."""

from __future__ import annotations

import pytest
import torch

from extractor.laws import draw_inputs
from extractor.measure import measure_input, measure_weight
from extractor.schema import Law, LawKind, Phase, TensorSpec, Workload


def spec(name: str, tensor: torch.Tensor, law: Law) -> TensorSpec:
    return TensorSpec(
        name=name,
        shape=tuple(tensor.shape),
        stride=tensor.stride(),
        dtype=str(tensor.dtype).removeprefix("torch."),
        law=law,
    )


def draw(tensor: torch.Tensor, law: Law, seed: int = 0) -> torch.Tensor:
    workload = Workload(
        id="decode-b1",
        phase=Phase.DECODE,
        batch=1,
        rows=1,
        cache_len=16,
        inputs=(spec("x", tensor, law),),
        outputs=(),
        calls=1,
        exact_key="",
    )
    return draw_inputs(workload, torch.Generator().manual_seed(seed))[0]


def test_activations_are_normal_with_their_own_moments() -> None:
    torch.manual_seed(0)
    law = measure_input(torch.randn(64, 512) * 3 + 5, "")
    assert law.kind is LawKind.NORMAL
    assert (law.mean, law.std) == (pytest.approx(5, abs=0.1), pytest.approx(3, abs=0.1))


def test_a_mostly_empty_cache_is_measured_where_it_is_filled() -> None:
    torch.manual_seed(0)
    cache = torch.zeros(1, 2, 64, 32)
    cache[:, :, :8] = torch.randn(1, 2, 8, 32)
    assert measure_input(cache, "key").std == pytest.approx(1.0, abs=0.1)


def test_decode_mask_is_a_prefix() -> None:
    low = torch.finfo(torch.bfloat16).min
    mask = torch.zeros(2, 1, 1, 16, dtype=torch.bfloat16)
    mask[..., 9:] = low
    assert measure_input(mask, "mask").kind is LawKind.PREFIX_MASK
    assert measure_input(mask == 0, "mask").kind is LawKind.PREFIX_MASK


def test_prefill_mask_is_causal() -> None:
    keep = torch.ones(8, 16, dtype=torch.bool).tril().expand(2, 1, 8, 16)
    assert measure_input(keep, "mask").kind is LawKind.CAUSAL_MASK


def test_other_masks_are_recorded() -> None:
    window = torch.zeros(1, 1, 1, 16)
    window[..., :4] = torch.finfo(torch.float32).min  # a sliding window drops the front
    assert measure_input(window, "mask").kind is LawKind.RECORDED
    assert measure_input(torch.randn(1, 1, 1, 16), "mask").kind is LawKind.RECORDED


def test_group_offsets_stay_valid_and_vary() -> None:
    offsets = torch.tensor([2, 2, 5, 12], dtype=torch.int32)
    law = measure_input(offsets, "offsets")
    drawn = [draw(offsets, law, seed) for seed in range(4)]
    for tensor in drawn:
        assert tensor.dtype == torch.int32
        assert int(tensor[-1]) == 12
        assert bool((tensor.diff() >= 0).all())
    assert len({tuple(tensor.tolist()) for tensor in drawn}) > 1


def test_expert_ids_stay_in_range() -> None:
    ids = torch.tensor([0, 3, 5, 1])
    drawn = draw(ids, measure_input(ids, "ids", experts=6))
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) < 6


def test_flags_are_drawn_both_ways() -> None:
    flags = torch.zeros(64, 1, dtype=torch.bool)
    drawn = draw(flags, measure_input(flags, ""))
    assert drawn.dtype == torch.bool
    assert 0 < int(drawn.sum()) < 64


def test_weights_keep_their_mean() -> None:
    torch.manual_seed(0)
    law = measure_weight(1 + 0.1 * torch.randn(4096))
    assert (law.mean, law.std) == (pytest.approx(1, abs=0.02), pytest.approx(0.1, abs=0.02))

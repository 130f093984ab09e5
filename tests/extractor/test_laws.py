"""Draws at dtypes where a detour over fp32 would show."""

import pytest
import torch

from extractor.laws import draw_inputs, draw_weights
from extractor.schema import Law, LawKind, Phase, TensorSpec, WeightSpec, Workload


def _drawn(dtype: str, law: Law) -> torch.Tensor:
    spec = TensorSpec(name="x", shape=(64, 64), stride=(64, 1), dtype=dtype, law=law)
    workload = Workload(
        id="w",
        phase=Phase.DECODE,
        batch=1,
        rows=1,
        cache_len=0,
        inputs=(spec,),
        outputs=(),
        calls=1,
        exact_key="",
    )
    return draw_inputs(workload, torch.Generator().manual_seed(0))[0]


@pytest.mark.parametrize("law", [Law(kind=LawKind.NORMAL), Law(kind=LawKind.UNIFORM)])
def test_fp64_values_do_not_fit_fp32(law: Law) -> None:
    values = _drawn("float64", law)
    assert float((values.float().double() != values).double().mean()) > 0.9


def test_fp64_weights_do_not_fit_fp32() -> None:
    spec = WeightSpec(attribute="w", shape=(64,), dtype="float64")
    weight = draw_weights((spec,), torch.Generator().manual_seed(0))["w"]
    assert bool((weight.float().double() != weight).any())


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_values_stay_in_range(dtype: str) -> None:
    values = _drawn(dtype, Law(kind=LawKind.NORMAL, std=2.0**14)).float()
    assert bool(torch.isfinite(values).all())
    assert float(values.abs().max()) == torch.finfo(getattr(torch, dtype)).max


def test_what_the_task_draws_itself_has_no_law() -> None:
    with pytest.raises(ValueError, match="own code"):
        _drawn("float32", Law(kind=LawKind.SOURCE))

"""Rendered candidates against torch: every body, odd shapes, dtypes, row counts and strides."""

from __future__ import annotations

import pytest
import torch

from optimizer.languages.cpp_call import KernelDeclined
from optimizer.policies.catalog.knobs import AttentionKnobs, LinearKnobs, RowKnobs
from tests.optimizer.policies.catalog import models
from tests.optimizer.policies.catalog.harness import error_over_eager, kernel_for, run, runnable
from tests.optimizer.policies.catalog.tracing import trace

BF16, F32, F16 = torch.bfloat16, torch.float32, torch.float16
BODIES = ("avx512_bf16", "avx512f", "avx2", "portable")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def needs(body: str) -> None:
    if not runnable(body):
        pytest.skip(f"this machine has no {body}")


def draw(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def rope_inputs(rows: int, length: int, rotary: int, dtype: torch.dtype = BF16) -> list[torch.Tensor]:
    q = draw(rows, length, 6 * 40, dtype=dtype)[..., : 4 * 40]  # rows further apart than long
    k = draw(rows, length, 2 * 40, dtype=dtype)
    angle = torch.rand(1, length, rotary // 2).repeat(1, 1, 2) * 6
    return [q, k, angle.cos().to(dtype), angle.sin().to(dtype)]


ROWWISE = {
    "norm": (lambda: models.RmsNorm(67), lambda m: [draw(m, 1, 67)]),
    "zero_centred": (lambda: models.ZeroCentredNorm(64), lambda m: [draw(m, 1, 64)]),
    "weightless": (lambda: models.WeightlessNorm(50), lambda m: [draw(m, 3, 50)]),
    "residual": (
        lambda: models.ResidualNorm(models.RmsNorm(100)),
        lambda m: [draw(m, 1, 100), draw(m, 1, 200)[..., ::2]],
    ),
    "gated": (lambda: models.GatedNorm(48), lambda m: [draw(8 * m, 48), draw(8 * m, 48)]),
    "silu": (lambda: models.SiluGate(), lambda m: [8 * draw(m, 1, 71), draw(m, 1, 71)]),
    "gelu": (lambda: models.ChunkedGelu(), lambda m: [4 * draw(m, 1, 70)]),
    "rope": (lambda: models.QkNormRope(40, 40), lambda m: rope_inputs(m, 1, 40)),
    "partial": (lambda: models.QkNormRope(40, 16), lambda m: rope_inputs(m, 2, 16)),
    "bare_rope": (lambda: models.QkNormRope(40, 40, norm=False), lambda m: rope_inputs(m, 1, 40)),
    "interleaved": (
        lambda: models.InterleavedRope(3, 16),
        lambda m: [draw(m, 3, 1, 24)[..., :16], draw(1, 1, 16), draw(1, 1, 16)],
    ),
}


@pytest.mark.parametrize("name", ROWWISE)
def test_row_programs_equal_eager_bit_for_bit(name: str) -> None:
    needs("avx2")
    make, inputs = ROWWISE[name]
    module = make()
    spec = trace(module, [inputs(1), inputs(4)], rows=(1, 4))
    kernel = kernel_for(spec, "avx2", RowKnobs(2, buffer=name in ("residual", "rope")))
    for rows in (1, 3, 4):
        given = inputs(rows)
        before = [item.clone() for item in given]
        got, expected = run(kernel, spec, module, given)
        for mine, eager in zip(got, expected, strict=True):
            assert mine.stride() == eager.stride()
            assert torch.equal(mine, eager), f"{name} at {rows} rows"
        assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


@pytest.mark.parametrize(("body", "dtype"), [("avx512_bf16", BF16), ("avx512f", F32), ("portable", F16)])
def test_row_program_in_every_body_and_dtype(body: str, dtype: torch.dtype) -> None:
    needs(body)
    module = models.ResidualNorm(models.RmsNorm(83, dtype))
    inputs = [draw(2, 1, 83, dtype=dtype), draw(2, 1, 83, dtype=dtype)]
    spec = trace(module, [inputs])
    got, expected = run(kernel_for(spec, body), spec, module, inputs)
    exact = module.double()
    exact.norm.dtype = torch.float64
    truth = exact(*[item.double() for item in inputs])
    for mine, eager, fact in zip(got, expected, truth, strict=True):
        assert error_over_eager(mine, eager, fact) <= 1.5


def test_unusual_values_pass_through_as_in_eager() -> None:
    needs("avx512_bf16")
    module = models.SiluGate()
    gate = draw(1, 1, 64)
    gate[0, 0, :6] = torch.tensor([float("nan"), float("inf"), -float("inf"), 100.0, -100.0, -89.0])
    inputs = [gate, torch.ones(1, 1, 64, dtype=BF16)]
    spec = trace(module, [inputs])
    (got,), (expected,) = run(kernel_for(spec, "avx512_bf16"), spec, module, inputs)
    assert torch.equal(got.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert torch.equal(got.isnan(), expected.isnan())


def test_another_row_length_is_declined() -> None:
    needs("portable")
    module = models.SiluGate()
    spec = trace(module, [[draw(1, 1, 32), draw(1, 1, 32)]])
    kernel = kernel_for(spec, "portable")
    with pytest.raises(KernelDeclined):
        run(kernel, spec, module, [draw(1, 1, 33), draw(1, 1, 33)])


LINEAR = {
    "avx512_bf16": (BF16, 1000, (33, 7), True, LinearKnobs(2, 2, 4096)),
    "avx512f": (BF16, 96, (40,), False, LinearKnobs(1, 2, 0)),
    "avx2": (BF16, 77, (16, 8, 8), False, LinearKnobs(2, 1, 2048)),
    "portable": (F32, 50, (9,), True, LinearKnobs(1, 1, 0)),
}


@pytest.mark.parametrize("body", LINEAR)
def test_linear_groups_at_any_row_count(body: str) -> None:
    needs(body)
    dtype, k, widths, bias, knobs = LINEAR[body]
    module = models.Linears(k, widths, bias=bias, dtype=dtype)
    spec = trace(module, [[draw(1, 1, k, dtype=dtype)], [draw(4, 1, k, dtype=dtype)]], rows=(1, 4))
    kernel = kernel_for(spec, body, knobs)
    for rows in (1, 2, 3, 4, 8, 13):
        x = draw(rows, 1, 2 * k, dtype=dtype)[..., :k]
        got, expected = run(kernel, spec, module, [x])
        for mine, eager, part in zip(got, expected, module.parts, strict=True):
            truth = x.double() @ part.weight.double().T
            truth = truth if part.bias is None else truth + part.bias.double()
            limit = (4 if dtype == F32 else 1) * torch.finfo(dtype).eps * truth.abs().max().item()
            assert (mine.double() - truth).abs().max().item() <= limit, f"{rows} rows"
            assert mine.stride() == eager.stride()


def test_linear_half_precision_and_prologue() -> None:
    needs("avx2")
    halves = models.Linears(40, (12,), dtype=F16)
    spec = trace(halves, [[draw(2, 1, 40, dtype=F16)]], rows=(2,))
    got, expected = run(kernel_for(spec, "avx2"), spec, halves, [draw(2, 1, 40, dtype=F16)])
    assert torch.allclose(got[0], expected[0], atol=2e-3, rtol=2e-3)
    module = models.GatedOutput(72, 24)
    spec = trace(module, [[draw(1, 1, 72), draw(1, 1, 72)]])
    inputs = [draw(5, 27, 72), draw(5, 27, 72)]  # more rows than are computed at a time
    (mine,), (eager,) = run(kernel_for(spec, "avx2"), spec, module, inputs)
    assert torch.allclose(mine.float(), eager.float(), atol=2e-2, rtol=1e-2)
    assert torch.nn.functional.cosine_similarity(mine.float().flatten(), eager.float().flatten(), 0) > 0.9999


def test_two_threads_agree_with_one() -> None:
    needs("avx2")
    linear, norm = models.Linears(64, (19, 5)), models.QkNormRope(40, 40)
    for module, inputs in ((linear, [draw(3, 1, 64)]), (norm, rope_inputs(3, 1, 40))):
        spec = trace(module, [inputs])
        kernel = kernel_for(spec, "avx2")
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            alone, _ = run(kernel, spec, module, inputs)
            torch.set_num_threads(2)
            shared, _ = run(kernel, spec, module, inputs)
        finally:
            torch.set_num_threads(before)
        assert all(torch.equal(a, b) for a, b in zip(alone, shared, strict=True))


def mask_of(kind: str, rows: int, length: int) -> torch.Tensor:
    """A prefix mask a row, each of another length."""
    keep = torch.arange(length) < torch.arange(3, 3 + 5 * rows, 5)[:, None, None, None]
    return (
        keep if kind == "sdpa" else torch.zeros(keep.shape).masked_fill(~keep, torch.finfo(BF16).min).to(BF16)
    )


@pytest.mark.parametrize(
    ("body", "kind", "kv", "width"),
    [
        ("avx512_bf16", "eager", 2, 40),
        ("avx512f", "sdpa", 4, 32),
        ("avx2", "sdpa", 1, 24),
        ("portable", "eager", 4, 10),
    ],
)
def test_attention_over_a_static_cache(body: str, kind: str, kv: int, width: int) -> None:
    needs(body)
    rows, heads, length = 3, 4, 37
    module = models.Attention((rows, kv, length, width), heads, kind)
    q = draw(rows, 1, heads, width).transpose(1, 2)
    inputs = [q, draw(rows, kv, length, width), draw(rows, kv, length, width), mask_of(kind, rows, length)]
    spec = trace(module, [inputs], rows=(rows,))
    kernel = kernel_for(spec, body, AttentionKnobs(keys=2, block=16, chunk=1, fetch=2))
    (mine,), (eager,) = run(kernel, spec, module, inputs)
    module.dtype = torch.float64
    truth = module(*[item if item.dtype == torch.bool else item.double() for item in inputs])
    assert error_over_eager(mine, eager, truth) <= 1.5
    assert mine.stride() == eager.stride()
    for cache in inputs[1:3]:
        cache[:, :, 14:] = float("nan")  # beyond every mask: must not be read
    (again,), _ = run(kernel, spec, models.Attention((rows, kv, length, width), heads, kind), inputs)
    assert torch.equal(again, mine)


def test_a_row_with_everything_masked_is_what_eager_says() -> None:
    needs("avx2")
    for kind in ("eager", "sdpa"):
        module = models.Attention((2, 2, 20, 16), 2, kind)
        inputs = [draw(2, 2, 1, 16), draw(2, 2, 20, 16), draw(2, 2, 20, 16), mask_of(kind, 2, 20)]
        inputs[3][1] = False if kind == "sdpa" else torch.finfo(BF16).min
        spec = trace(module, [inputs], rows=(2,))
        (mine,), (eager,) = run(kernel_for(spec, "avx2"), spec, module, inputs)
        assert torch.allclose(mine.float(), eager.float(), atol=2e-2), kind

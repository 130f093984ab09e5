"""The double-precision run of references that cast."""

import pytest
import torch

from optimizer.judge import oracle


class _Norm(torch.nn.Module):
    """Casts down on purpose, as norms in model code do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        scores = torch.softmax(wide, dim=-1, dtype=torch.float32)
        return self.weight * scores.to(x.dtype)


def test_every_cast_is_neutralised() -> None:
    model = _Norm()
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    model.load_state_dict(oracle.widen(model.state_dict()), assign=True)
    (exact,) = oracle.exact_outputs(model, [x])
    wide = x.double()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact, torch.softmax(wide, -1), rtol=1e-12, atol=0)


def test_big_weights_are_widened_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "BIG_WEIGHT", 1000)
    monkeypatch.setattr(oracle, "_CHUNK_ELEMENTS", 64 * 7)
    layer = torch.nn.Linear(64, 100, bias=True, dtype=torch.bfloat16)
    weights = oracle.widen(layer.state_dict())
    assert weights["weight"].dtype == torch.bfloat16
    assert weights["bias"].dtype == torch.float64
    x = torch.randn(2, 3, 64).bfloat16()
    expected = x.double() @ layer.weight.detach().double().T + layer.bias.detach().double()
    layer.load_state_dict(weights, assign=True)
    (exact,) = oracle.exact_outputs(layer, [x])
    torch.testing.assert_close(exact, expected, rtol=1e-5, atol=1e-6)


def test_outputs_are_flattened() -> None:
    a, b = torch.ones(1), torch.zeros(2)
    assert [t.shape[0] for t in oracle.as_tuple((a, [b, (a,)]))] == [1, 2, 1]


class _Mixed(torch.nn.Module):
    """Everything a program may return, and tensors it makes itself at the default dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3)

    def forward(self, x: torch.Tensor) -> object:
        start = torch.zeros(3)
        y = self.conv(x).mean((-1, -2)) + start
        return y, [y.argmax(-1), (y.sum(), 3, 0.5, True)]


def test_numbers_and_nested_outputs_become_tensors() -> None:
    model = _Mixed().requires_grad_(False)
    x = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    outputs = oracle.eager_outputs(model, [x])
    expected = [torch.float32, torch.int64, torch.float32, torch.int64, torch.float64, torch.bool]
    assert [output.dtype for output in outputs] == expected
    assert [tuple(output.shape) for output in outputs] == [(2, 3), (2,), (), (), (), ()]


def test_default_dtype_is_double_inside_only() -> None:
    model = _Mixed().double().requires_grad_(False)
    outputs = oracle.exact_outputs(model, [torch.randn(2, 2, 5, 5)])
    assert outputs[0].dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_fp8_weights_are_widened_exactly(dtype: torch.dtype) -> None:
    weight = torch.randn(8, 16, generator=torch.Generator().manual_seed(0)).to(dtype)

    class Scaled(torch.nn.Module):
        weight: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ (self.weight.to(x.dtype) * 0.5).T

    model = Scaled()
    model.load_state_dict(oracle.widen(model.state_dict()), assign=True)
    x = torch.randn(3, 16).bfloat16()
    (exact,) = oracle.exact_outputs(model, [x])
    torch.testing.assert_close(exact, x.double() @ (weight.double() * 0.5).T, rtol=1e-14, atol=0)

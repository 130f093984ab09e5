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

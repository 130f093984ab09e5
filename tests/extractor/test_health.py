"""Health flags name the tasks on which a wrong kernel could pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from extractor.health import examine
from extractor.schema import Law, LawKind, Phase, TensorSpec, Workload


class Operator(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.function(x, y)


def flags(function: Callable[..., torch.Tensor], second: Law | None = None) -> tuple[str, ...]:
    torch.manual_seed(0)
    inputs = [torch.randn(4, 8), torch.randn(4, 8)]
    if second is not None and second.kind is LawKind.INTEGERS:
        inputs[1] = torch.tensor([0, 1, 1, 2])
    laws = (Law(kind=LawKind.NORMAL), second or Law(kind=LawKind.NORMAL))
    specs = tuple(
        TensorSpec(name=name, shape=tuple(t.shape), stride=t.stride(), dtype="float32", law=law)
        for name, t, law in zip("xy", inputs, laws, strict=True)
    )
    workload = Workload(
        id="decode-b4", phase=Phase.DECODE, batch=4, rows=4, cache_len=16, inputs=specs, outputs=(), calls=1,
        exact_key="",
    )  # fmt: skip
    model = Operator(function)
    return examine(model, workload, inputs, [model(*inputs)])


def test_a_sound_operator_has_no_flags() -> None:
    assert flags(lambda x, y: x * y) == ()


@pytest.mark.parametrize(
    ("function", "flag"),
    [
        (lambda x, y: torch.ones_like(x) + 0 * (x + y), "output 0 is constant"),
        (lambda x, y: 1e-9 * (x + y), "output 0 is near zero"),
        (lambda x, y: x.exp(), "input y does not matter"),
        (lambda x, y: (x + y) / 0, "output 0 is not finite"),
    ],
)
def test_suspicious_operators(function: Callable[..., torch.Tensor], flag: str) -> None:
    assert flag in flags(function)


def test_ignored_indices_are_noticed() -> None:
    law = Law(kind=LawKind.INTEGERS, low=0, high=4)
    assert flags(lambda x, y: x[y], law) == ()
    assert flags(lambda x, y: x.exp(), law) == ("input y does not matter",)

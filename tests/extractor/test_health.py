"""Health flags name the tasks on which a wrong kernel could pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from extractor.health import examine
from extractor.keys import dtype_name
from extractor.program import flat_outputs
from extractor.schema import Law, LawKind, Phase, TensorSpec, Workload

Function = Callable[..., torch.Tensor]


class Operator(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def flags(function: Function, second: Law | None = None) -> tuple[str, ...]:
    torch.manual_seed(0)
    inputs = [torch.randn(4, 8), torch.randn(4, 8)]
    fresh = [torch.randn(4, 8), torch.randn(4, 8)]
    if second is not None and second.kind is LawKind.INTEGERS:
        inputs[1], fresh[1] = torch.tensor([0, 1, 1, 2]), torch.tensor([3, 1, 0, 2])
    return judged(function, inputs, fresh, (Law(kind=LawKind.NORMAL), second or Law(kind=LawKind.NORMAL)))


def drawn(function: Function, draw: Callable[[], torch.Tensor]) -> tuple[str, ...]:
    """The flags of an operator on one input, as for an imported task."""
    torch.manual_seed(0)
    return judged(function, [draw()], [draw()], (Law(kind=LawKind.SOURCE),))


def judged(
    function: Function, inputs: list[torch.Tensor], fresh: list[torch.Tensor], laws: tuple[Law, ...]
) -> tuple[str, ...]:
    specs = tuple(
        TensorSpec(name=name, shape=tuple(t.shape), stride=t.stride(), dtype=dtype_name(t.dtype), law=law)
        for name, t, law in zip("xy", inputs, laws, strict=False)
    )
    workload = Workload(
        id="decode-b4", phase=Phase.DECODE, batch=4, rows=4, cache_len=16, inputs=specs, outputs=(), calls=1,
        exact_key="",
    )  # fmt: skip
    model = Operator(function)
    return examine(model, workload, inputs, flat_outputs(model(*inputs)), fresh)


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


@pytest.mark.parametrize(
    ("function", "draw"),
    [
        (lambda x: x.relu(), lambda: torch.rand(64, 512)),
        (lambda x: x.softmax(1), lambda: torch.randn(64, 512)),
        (lambda x: x.sum(1), lambda: torch.randn(64, 4096)),
        (lambda x: x.amax(1), lambda: torch.randn(64, 4096)),
        (lambda x: x @ x.T, lambda: torch.randn(64, 256)),
        (lambda x: x.argmax(1), lambda: torch.randn(64, 256)),
        (lambda x: (x, [x.sum(), float(x.sum())]), lambda: torch.randn(64)),
        (lambda x: x.float().sum(1), lambda: torch.randn(64, 400).to(torch.float8_e4m3fn)),
        (lambda x: x.to(torch.float8_e5m2), lambda: torch.randn(64, 40)),
        (lambda x: x * 2, lambda: torch.randn(())),
        # Half of this input is never read: that half says everything is no guess.
        (lambda x: x[:, -1].exp(), lambda: torch.randn(64, 2)),
    ],
)
def test_sound_operators_on_drawn_inputs_have_no_flags(
    function: Function, draw: Callable[[], torch.Tensor]
) -> None:
    assert drawn(function, draw) == ()


@pytest.mark.parametrize(
    ("function", "draw", "flag"),
    [
        # Averages of uniform data: 0.5, whatever the data.
        (lambda x: x.mean(1), lambda: torch.rand(64, 20_000), "output 0 is answered by a constant"),
        (lambda x: x.amax(1), lambda: torch.rand(64, 20_000), "output 0 is answered by a constant"),
        (lambda x: x.norm(), lambda: torch.randn(50_000), "output 0 is hardly different for other inputs"),
        (lambda x: x * 2, lambda: torch.arange(8.0), "no input changes from draw to draw"),
        (lambda x: x * 2, lambda: torch.randn(0, 8), "output 0 is empty"),
        (lambda x: nn.functional.dropout(x), lambda: torch.randn(64, 8), "output 0 changes from run to run"),
        # Rows of their own scale: the average is no constant, but half of a row says it.
        (
            lambda x: x.mean(1),
            lambda: torch.rand(64, 20_000) * torch.rand(64, 1) * 10,
            "output 0 can be guessed from half of input x",
        ),
        (
            lambda x: x.float().mean((1, 2)).sum(),
            lambda: (torch.rand(4, 100, 100) * torch.rand(4, 1, 1) * 10).to(torch.bfloat16),
            "output 0 can be guessed from half of input x",
        ),
    ],
)
def test_a_wrong_kernel_could_pass(function: Function, draw: Callable[[], torch.Tensor], flag: str) -> None:
    assert drawn(function, draw) == (flag,)


def test_an_operator_that_fails_on_fresh_inputs_is_flagged() -> None:
    table = torch.randn(4, 8)
    draws = iter([torch.tensor([0, 1, 3]), torch.tensor([0, 9, 3])])
    assert drawn(lambda x: table[x], lambda: next(draws)) == ("it fails on fresh inputs (IndexError)",)


def test_inputs_that_belong_together_matter() -> None:
    """A split of rows into parts only goes with that many rows: with fresh sizes alone the operator fails."""
    source = Law(kind=LawKind.SOURCE)

    def parts(x: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.softmax(0) for part in x.split(sizes.tolist())])

    inputs = [torch.randn(6, 8), torch.tensor([2, 4])]
    fresh = [torch.randn(9, 8), torch.tensor([3, 6])]
    assert judged(parts, inputs, fresh, (source, source)) == ()

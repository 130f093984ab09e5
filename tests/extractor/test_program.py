"""Running a task file's code: seeds that hold and leave no trace, states by name, flat outputs."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from extractor.program import bind_state, flat_outputs, merge, move_to, seeded, state_of, with_constants


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("table", torch.ones(2), persistent=False)
        self.packed = self.first.weight.detach().t().contiguous()
        self.parts = [self.packed[0], {"row": self.packed[1]}, "text"]


def draws() -> tuple[float, float, float]:
    return float(torch.rand(())), random.random(), float(np.random.rand())


def test_a_seed_fixes_torch_python_and_numpy() -> None:
    with seeded(3):
        first = draws()
    with seeded(3):
        second = draws()
    with seeded(4):
        other = draws()
    assert first == second
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_seeding_inside_is_ignored_and_nothing_outside_changes() -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    functions = torch.manual_seed, random.seed, np.random.seed
    with seeded(3):
        expected = draws()
    with seeded(3):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        assert draws() == expected
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]
    assert (torch.manual_seed, random.seed, np.random.seed) == functions


def test_a_state_has_both_names_of_a_tied_weight_and_every_buffer() -> None:
    model = Tied()
    assert list(state_of(model)) == ["first.weight", "second.weight", "table"]
    fresh = {name: value + 1 for name, value in state_of(model).items()}
    bind_state(model, fresh)
    assert model.second.weight.data_ptr() == fresh["second.weight"].data_ptr()
    assert model.table is fresh["table"]
    with pytest.raises(KeyError, match=r"first\.bias"):
        bind_state(model, {"first.bias": torch.ones(4)})
    with pytest.raises(AttributeError):
        bind_state(model, {"third.weight": torch.ones(4)})


def test_plain_attributes_move_with_the_model() -> None:
    model = move_to(Tied(), "meta")
    assert model.first.weight.is_meta
    assert model.packed.is_meta
    assert model.parts[0].is_meta
    assert model.parts[1]["row"].is_meta
    assert model.parts[2] == "text"


def test_constants_take_their_positions() -> None:
    assert merge([], {0: 1, 1: 2}) == [1, 2]

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, factor: float, y: torch.Tensor) -> torch.Tensor:
            return x * factor + y

    model = with_constants(Model, {1: 3.0})()
    assert model(torch.ones(2), torch.ones(2)).tolist() == [4.0, 4.0]
    assert type(model).__name__ == "Model"


def test_outputs_are_flat_and_numbers_become_tensors() -> None:
    x = torch.ones(2)
    flat = flat_outputs((x, [x, (True, 2)], 0.5))
    assert flat[0] is x
    assert [(t.dtype, t.item()) for t in flat[2:]] == [
        (torch.bool, 1),
        (torch.int64, 2),
        (torch.float64, 0.5),
    ]
    with pytest.raises(TypeError, match="NoneType among the outputs"):
        flat_outputs((x, None))

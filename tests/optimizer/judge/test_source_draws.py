"""Fresh inputs of tasks whose own code draws them: which may be mixed, which only scaled, which must stay."""

import random

import pytest
import torch

from extractor.kernelbench import import_kernelbench
from optimizer.judge import draws, source_draws
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.source_draws import SCALE, Change, SourceRefresher, independent
from optimizer.judge.subjects import Subjects
from optimizer.machine import machine_facts

_SOURCE = """import torch


class Model(torch.nn.Module):
    def forward(self, x, mask, index, table):
        return (x * mask)[index] + table


def get_inputs():
    mask = torch.tril(torch.rand(16, 96))
    return [torch.randn(16, 96), mask, torch.randint(0, 16, (16,)), torch.arange(96.0).sin()]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module", params=["expensive", "cheap"])
def subjects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    """Draws are not expensive here; they are taken to be so, or to be cheap, so that the machine does not decide."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("source")
    (folder / "kb.py").write_text(_SOURCE)
    task = import_kernelbench(folder / "kb.py", folder / "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_draws, "_CHEAP_SECONDS", 0.0 if request.param == "expensive" else 1e3)
        return Subjects(task, JudgeSettings(seed=5), machine_facts())


def _draws(*shape: int) -> torch.Tensor:
    return torch.randn(8, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "values",
    [
        _draws(64, 32),
        _draws(1000) * 7 + 3,
        torch.rand(4, 40, 30, generator=torch.Generator().manual_seed(1)),
        _draws(64, 64).bfloat16(),
    ],
)
def test_independent_values_are_recognised(values: torch.Tensor) -> None:
    assert independent(values)


@pytest.mark.parametrize(
    "values",
    [
        _draws(500).sort().values,
        _draws(64, 64) + _draws(64, 64).mT,
        _draws(64, 64).tril(),
        torch.nn.functional.normalize(_draws(64, 64), dim=-1),
        _draws(64, 64).softmax(-1),
        _draws(64, 64) - _draws(64, 64).mean(-1, keepdim=True),
        _draws(64, 1).expand(-1, -1, 64).contiguous(),
        torch.arange(4096.0).sin().expand(8, -1),
        torch.full((8, 1024), float("-inf")),
        torch.ones(8, 1024),
        _draws(4),
        torch.randint(0, 9, (8, 1024)),
    ],
)
def test_values_with_a_meaning_are_left_together(values: torch.Tensor) -> None:
    assert not independent(values)


def test_each_input_changes_as_its_values_allow(subjects: Subjects) -> None:
    (subject,) = subjects.subjects
    refresher, region = subject.refresher, subject.inputs.timing
    assert isinstance(refresher, SourceRefresher)
    assert region is not None
    assert refresher._changes == [Change.FREE, Change.SCALED, Change.KEPT, Change.KEPT]
    seen = set()
    for seed in range(3):
        refresher.refresh(random.Random(seed))
        x, mask, index, table = (subjects.inputs.stacked(region, i) for i in range(4))
        assert torch.equal(mask, mask.tril())
        assert float(mask.min()) >= 0
        assert float(mask.max()) <= 1
        assert int(index.min()) >= 0
        assert int(index.max()) < 16
        assert torch.equal(table[3], torch.arange(96.0).sin())
        assert abs(float(x.std()) - 1) < 0.1
        seen |= {row.numpy().tobytes() for row in x} | {row.numpy().tobytes() for row in mask}
    assert len(seen) == 3 * 2 * region.slots  # no call sees an input twice


def test_scaled_values_stay_between_their_own_bounds(subjects: Subjects) -> None:
    refresher = subjects.subjects[0].refresher
    assert isinstance(refresher, SourceRefresher)
    region = subjects.subjects[0].inputs.timing
    assert region is not None
    refresher.refresh(random.Random(1))
    largest = subjects.inputs.stacked(region, 1).flatten(1).amax(1)
    drawn = refresher._draws[1].flatten(1).amax(1)
    assert float(largest.min()) >= SCALE * float(drawn.min()) * 0.999


def test_unseen_inputs_are_no_change_of_earlier_draws(
    subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresher = subjects.subjects[0].refresher
    assert isinstance(refresher, SourceRefresher)
    region = subjects.subjects[0].inputs.timing
    assert region is not None

    def ratios() -> set[tuple[float, ...]]:
        mask = subjects.inputs.stacked(region, 1)
        # A factor changes none of these.
        return {tuple(round(float(one[i, 1] / one[i, 0]), 3) for i in range(1, 5)) for one in mask}

    refresher.refresh(random.Random(1))
    known = ratios()
    refresher.refresh(random.Random(2))
    assert bool(known & ratios()) is refresher.recurs
    known |= ratios()
    monkeypatch.setattr(draws, "UNSEEN_SECONDS", 1e3)
    assert refresher.unseen(random.Random(3)) == 1.0
    assert len(known & ratios()) <= 0.02 * region.slots
    if refresher.recurs:
        monkeypatch.setattr(draws, "UNSEEN_SECONDS", 0.0)
        assert 0.1 <= refresher.unseen(random.Random(4), slots=20) < 0.2

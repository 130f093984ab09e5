"""Fresh inputs of tasks with recorded laws: windows of pools, each times a factor, and inputs drawn wholly anew."""

import random
from collections.abc import Iterator

import pytest
import torch

from optimizer.judge import draws
from optimizer.judge.draws import Refresher, scale
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subjects
from optimizer.machine import machine_facts
from tests.optimizer.fixtures import tasks


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subjects]:
    torch.set_num_threads(1)
    task = tasks.silu_gate(tmp_path_factory.mktemp("silu"), batches=(1,))
    opened = Subjects(task, JudgeSettings(seed=5), machine_facts())
    yield opened
    opened.close()


def _ratios(subjects: Subjects) -> tuple[list[list[float]], list[list[float]]]:
    """Per slot, the first values, and ratios of neighbours, which no factor changes."""
    region = subjects.subjects[0].inputs.timing
    assert region is not None
    rows = subjects.inputs.stacked(region, 0).flatten(1).double()
    return rows[:, :3].tolist(), (rows[:, 1:9] / rows[:, :8]).tolist()


def _known(pool: torch.Tensor, ratios: list[float]) -> bool:
    values = pool.double()
    near = torch.ones(len(values) - len(ratios), dtype=torch.bool)
    for index, ratio in enumerate(ratios):
        part = values[index + 1 : index + 1 + len(near)] / values[index : index + len(near)]
        near &= (part - ratio).abs() < 1e-5 * abs(ratio)
    return bool(near.any())


def test_windows_have_factors_of_their_own(subjects: Subjects) -> None:
    refresher = subjects.subjects[0].refresher
    assert isinstance(refresher, Refresher)
    assert refresher.recurs
    refresher.refresh(random.Random(1))
    values, ratios = _ratios(subjects)
    pool = refresher.pools[0]
    assert pool is not None
    assert len({tuple(row) for row in values}) == len(values)
    assert all(_known(pool, row) for row in ratios[:8])
    assert not set(pool.tolist()) & {row[0] for row in values[:50]}


def test_part_of_the_pool_is_other_each_time(subjects: Subjects) -> None:
    refresher = subjects.subjects[0].refresher
    assert isinstance(refresher, Refresher)
    pool = refresher.pools[0]
    assert pool is not None
    before = pool.clone()
    refresher.refresh(random.Random(2))
    assert 0 < int((pool != before).sum()) <= draws._REDRAWN


@pytest.mark.parametrize("at_once", [True, False])
def test_unseen_inputs_are_of_no_pool(
    subjects: Subjects, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    refresher = subjects.subjects[0].refresher
    assert isinstance(refresher, Refresher)
    if not at_once:
        monkeypatch.setattr(draws, "_POOL", 1)
        monkeypatch.setattr(draws, "UNSEEN_SECONDS", 1e3)
    assert refresher.unseen(random.Random(3)) == 1.0
    _, ratios = _ratios(subjects)
    pool = refresher.pools[0]
    assert pool is not None
    assert not any(_known(pool, row) for row in ratios[:8])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_each_slot_is_scaled_by_its_factor(dtype: torch.dtype) -> None:
    slots = torch.full((2, 3), 4.0).to(dtype)
    scale(slots, [0.5, 1.0])
    assert slots.float().tolist() == [[2.0] * 3, [4.0] * 3]

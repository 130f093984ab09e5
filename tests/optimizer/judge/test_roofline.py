"""The roofline counts what a call must read of its inputs, never more; where that is unknown there is none."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from optimizer.candidate import Candidate, Language
from optimizer.judge import roofline
from optimizer.judge.arena import Layout, place
from optimizer.judge.dependence import needed_bytes
from optimizer.judge.judge import Judge, JudgeSettings
from optimizer.judge.verdict import Outcome
from tests.optimizer.fixtures import kernels, tasks


class _Does(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.forward = function


def _needed(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> int | None:
    layouts = [
        Layout(str(i), tuple(t.shape), tuple(t.stride()), str(t.dtype).removeprefix("torch."))
        for i, t in enumerate(inputs)
    ]
    return needed_bytes(_Does(function), inputs, place(layouts, 0, 1).tensors)


def _attend(
    keys: torch.Tensor, values: torch.Tensor, query: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    return torch.softmax(query @ keys.T * 0.1 + mask, -1) @ values


def test_positions_behind_a_mask_are_not_counted() -> None:
    generator = torch.Generator().manual_seed(3)
    keys, values = torch.randn(2, 64, 32, generator=generator)
    query = torch.randn(1, 32, generator=generator)
    for kept in (8, 64):
        mask = torch.zeros(1, 64)
        mask[:, kept:] = torch.finfo(torch.float32).min
        most = (2 * kept * 32 + 32 + kept) * 4
        needed = _needed(_attend, keys, values, query, mask)
        assert needed is not None
        assert 0.9 * most <= needed <= most


def test_what_a_slice_leaves_out_and_what_is_repeated_is_not_counted() -> None:
    x = torch.randn(10, 16)
    assert _needed(lambda x: x[:3] * 2, x) == 3 * 16 * 4
    assert _needed(lambda x: x * 2, torch.randn(1, 16).expand(10, 16)) == 16 * 4
    assert _needed(lambda x, i: x[i], x, torch.tensor([1, 1, 4])) == 2 * 16 * 4


def test_a_reference_without_derivative_is_unknown() -> None:
    assert _needed(lambda x: x.add_(1), torch.randn(4)) is None
    assert _needed(lambda x: x.argmax(-1), torch.randn(4)) is None


def test_attention_reads_its_cache(tmp_path: Path, quick: JudgeSettings) -> None:
    task = tasks.attention(tmp_path)
    with Judge(task, quick) as judge:
        verdict = judge.evaluate(Candidate(Language.CPP, kernels.ATTENTION))
        subjects = judge.subjects
        for subject in subjects.subjects[:2]:
            everything = sum(4 * torch.Size(spec.shape).numel() for spec in subject.workload.inputs)
            needed = roofline.input_bytes(subjects, subject)
            assert needed is not None
            assert 0 < needed <= everything  # how much depends on the draw: a peaked softmax needs few values
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    assert verdict.roofline is not None
    assert verdict.roofline > 0


def test_an_unknown_bound_is_none_not_zero(
    tmp_path: Path, quick: JudgeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roofline, "needed_bytes", lambda model, inputs, places: None)
    with Judge(tasks.attention(tmp_path), quick) as judge:
        verdict = judge.evaluate(Candidate(Language.CPP, kernels.ATTENTION))
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    assert verdict.roofline is None

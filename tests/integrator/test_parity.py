"""Distance from the truth: the numbers, the truth itself, and the bound."""

from typing import Any

import pytest
import torch

from integrator.engine import DecodeEngine
from integrator.ledger_schema import Parity
from integrator.parity import PARITY_MULTIPLE, compare, truth_logits, violation
from tests.integrator.toy import toy_model


def parity(rms: float, kl: float) -> Parity:
    return Parity(rms_error=rms, max_error=10 * rms, kl=kl, top1_agreement=1.0, positions=8)


def test_numbers_by_hand() -> None:
    truth = torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])
    logits = torch.tensor([[[0.0, 1.0], [0.0, 2.0]]])
    found = compare(logits, truth)
    assert found.rms_error == pytest.approx(2**0.5)
    assert found.max_error == 2.0
    assert found.top1_agreement == 0.5
    p = torch.softmax(truth[0, 1], -1)
    q = torch.softmax(logits[0, 1], -1)
    assert found.kl == pytest.approx(float((p * (p / q).log()).sum() / 2), rel=1e-5)
    assert found.positions == 2
    assert compare(truth, truth).kl == 0.0


def test_truth_is_the_same_weights_in_float32_and_leaves_the_model_alone(model: Any) -> None:
    engine = DecodeEngine.prepare(model, batch=2, prompt=6, tokens=5, seed=0)
    truth = truth_logits(model, engine)
    assert truth.shape == (2, 5, 97)
    assert model.dtype == torch.bfloat16
    exact = toy_model()
    exact.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
    with torch.no_grad():
        ids = torch.cat([engine.prompt_ids, engine.forced], dim=1)
        expected = exact(ids, logits_to_keep=5).logits
    torch.testing.assert_close(truth, expected, rtol=1e-5, atol=1e-5)


def test_teacher_forced_logits_line_up_with_the_truth(model: Any) -> None:
    engine = DecodeEngine.prepare(model, batch=1, prompt=6, tokens=5, seed=0)
    truth = truth_logits(model, engine)
    found = compare(engine.logits(model), truth)
    assert found.rms_error < 0.02 * float(truth.square().mean().sqrt())
    assert compare(engine.logits(model).roll(1, dims=1), truth).rms_error > 10 * found.rms_error


def test_a_float32_model_is_compared_with_float64() -> None:
    model = toy_model()
    engine = DecodeEngine.prepare(model, batch=1, prompt=4, tokens=3, seed=0)
    truth = truth_logits(model, engine)
    stock = compare(engine.logits(model), truth)
    assert 0 < stock.rms_error < 1e-4
    assert violation(stock, stock, scale=1.0) is None


def test_the_bound_is_a_multiple_of_stocks_own_error() -> None:
    stock = parity(0.01, 1e-4)
    assert violation(parity(0.01 * PARITY_MULTIPLE, 1e-4), stock, scale=1.0) is None
    assert "RMS logit error" in (violation(parity(0.011 * PARITY_MULTIPLE, 1e-4), stock, scale=1.0) or "")
    assert "KL divergence" in (violation(parity(0.01, 1.1e-4 * PARITY_MULTIPLE**2), stock, scale=1.0) or "")


def test_trimming_leaves_out_the_worst_positions_only() -> None:
    truth = torch.zeros(1, 8, 4)
    logits = torch.full((1, 8, 4), 0.1)
    logits[0, 3] = torch.tensor([9.0, 0.0, 0.0, 0.0])
    assert compare(logits, truth).rms_error > 1
    found = compare(logits, truth, trim=1 / 8)
    assert found.rms_error == pytest.approx(0.1)
    assert found.kl == pytest.approx(0.0, abs=1e-6)
    assert found.max_error == 9.0
    assert (found.positions, found.trimmed) == (8, 1)


def test_not_a_number_is_never_trimmed() -> None:
    logits = torch.zeros(1, 8, 4)
    logits[0, 0, 0] = float("nan")
    assert violation(compare(logits, torch.zeros(1, 8, 4), trim=0.5), parity(1.0, 1.0), scale=1.0) is not None


def test_not_a_number_is_never_within_the_bound() -> None:
    assert violation(parity(float("nan"), 0.0), parity(0.01, 1e-4), scale=1.0) is not None


def test_stock_without_any_error_still_allows_rounding_of_the_truth() -> None:
    assert violation(parity(1e-7, 0.0), parity(0.0, 0.0), scale=1.0) is None
    assert violation(parity(1e-3, 0.0), parity(0.0, 0.0), scale=1.0) is not None

"""A whole batch's ledger on a toy model: every rollback reason, engagement, and what the rows say."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from extractor.errors import KernelgraftError
from extractor.progress import SilentProgress
from integrator.batch_run import BatchRun, BatchSettings
from integrator.graph_patch import GraphPatch
from integrator.ledger import GraftFacts
from integrator.ledger_schema import BatchLedger, GraftOutcome, RollbackReason, Rung, RungStatus
from tests.integrator.toy import ToyKernel, down, find_toy_seams, gate_up

SHARE = 0.3


class Refused(KernelgraftError):
    template = "declined"


def measure(
    model: Any, kernels: Sequence[ToyKernel], *, share: float | None = SHARE, **options: Any
) -> BatchLedger:
    settings = BatchSettings(
        **{
            "model_name": "toy",
            "device": "cpu",
            "dtype": "bfloat16",
            "attention": "eager",
            "batch": 2,
            "prompt": 6,
            "tokens": 8,
            "seed": 0,
            "rounds": 4,
            "keep_all": False,
            "rungs": (Rung.SDPA, Rung.EAGER),
        }
        | options
    )
    facts = tuple(GraftFacts(k.id, f"task-{k.id}", k.family, "0" * 64, 2.0, share) for k in kernels)
    patch = GraphPatch(model, kernels, find_toy_seams(model))
    try:
        return BatchRun(model, patch, facts, settings, SilentProgress()).measure()
    finally:
        patch.release()


def outcome(ledger: BatchLedger, graft: str) -> GraftOutcome:
    return next(row for row in ledger.grafts if row.graft == graft)


def slow(value: torch.Tensor) -> torch.Tensor:
    for _ in range(200):
        value = value + 0
    return value


def refuse(value: torch.Tensor) -> torch.Tensor:
    raise Refused


def test_exact_grafts_are_kept_engaged_and_measured(model: Any) -> None:
    ledger = measure(model, [down(), gate_up()], keep_all=True)
    assert [row.name for row in ledger.configurations] == ["stock", "graph", "+A ffn_down", "+B ffn_gate_up"]
    assert all(row.kept for row in ledger.grafts)
    for row in ledger.grafts:
        assert row.sites == 2
        assert row.launches == row.expected_launches == row.sites * row.steps > 0
        assert row.projected_step_speedup == pytest.approx(1 / (1 - SHARE / 2))
    assert ledger.final.grafts == ("down", "gate_up")
    assert ledger.final.parity == ledger.stock_parity  # the toy kernels are bit-exact
    assert all(len(row.samples) == 4 for row in ledger.configurations)
    assert ledger.configurations[-1].projected_speedup == pytest.approx(1 / (1 - SHARE))
    assert {row.rung: row.status for row in ledger.rungs} == {
        Rung.SDPA: RungStatus.MEASURED,
        Rung.EAGER: RungStatus.MEASURED,
        Rung.INDUCTOR: RungStatus.LEFT_OUT,
        Rung.INDUCTOR_MAX: RungStatus.LEFT_OUT,
    }
    head = ledger.headline
    assert head.ci_low <= head.speedup <= head.ci_high
    assert head.stock_tokens_per_s == max(r.tokens_per_s.value for r in ledger.rungs if r.tokens_per_s)


def test_the_model_is_left_as_it_was(model: Any) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    measure(model, [gate_up(packs_weights=True)])
    assert model.config._attn_implementation == "eager"
    assert "forward" not in vars(model)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_never_called_is_no_engagement(model: Any) -> None:
    row = outcome(measure(model, [down(silent=True)]), "down")
    assert (row.kept, row.reason) == (False, RollbackReason.NO_ENGAGEMENT)
    assert "launched 0 times" in row.detail


def test_no_region_is_no_seam(model: Any) -> None:
    row = outcome(measure(model, [down(op_key="elsewhere")]), "down")
    assert row.reason is RollbackReason.NO_SEAM


def test_numerically_wrong_is_parity_and_the_next_graft_is_judged_without_it(model: Any) -> None:
    ledger = measure(model, [down(spoil=lambda v: v * 1.05), gate_up()], keep_all=True)
    assert outcome(ledger, "down").reason is RollbackReason.PARITY
    assert "RMS logit error" in outcome(ledger, "down").detail
    assert outcome(ledger, "gate_up").kept
    assert ledger.final.grafts == ("gate_up",)


def test_slower_is_rolled_back_and_the_final_configuration_is_measured_without_it(model: Any) -> None:
    ledger = measure(model, [down(spoil=slow), gate_up()])
    row = outcome(ledger, "down")
    assert row.reason is RollbackReason.SLOWER
    assert row.measured_step_speedup is not None
    assert row.measured_step_speedup.ci_high < 1
    assert "down" not in ledger.final.grafts
    assert "+A ffn_down" in [configuration.name for configuration in ledger.configurations]


def test_keep_all_keeps_a_slower_graft(model: Any) -> None:
    ledger = measure(model, [down(spoil=slow)], keep_all=True)
    assert ledger.final.grafts == ("down",)
    assert ledger.final.speedup.value < ledger.configurations[1].speedup.value


def test_differing_runs_are_unstable(model: Any) -> None:
    noise = itertools.count()
    row = outcome(measure(model, [down(spoil=lambda v: v + 0.01 * next(noise))]), "down")
    assert row.reason is RollbackReason.UNSTABLE


def test_not_a_number_is_unstable(model: Any) -> None:
    row = outcome(measure(model, [down(spoil=lambda v: v / 0.0 * 0.0)]), "down")
    assert row.reason is RollbackReason.UNSTABLE


def test_a_kernel_that_declines_in_the_graph_is_capture_unsafe(model: Any) -> None:
    row = outcome(measure(model, [down(spoil=refuse)]), "down")
    assert row.reason is RollbackReason.CAPTURE_UNSAFE
    assert "declined" in row.detail


def test_saving_more_than_its_share_is_implausible(model: Any) -> None:
    ledger = measure(model, [down()], share=-1.0, keep_all=True)
    assert outcome(ledger, "down").reason is RollbackReason.IMPLAUSIBLE


def test_without_survivors_the_final_configuration_is_the_bare_graph(model: Any) -> None:
    ledger = measure(model, [down(spoil=lambda v: v * 2)])
    assert ledger.final.grafts == ()
    assert ledger.final.parity == ledger.stock_parity

"""The ledger's decisions: ladder, projection, rollback, rungs and headline."""

import pytest

from extractor.families import Family
from integrator import ledger
from integrator.ledger import GraftFacts
from integrator.ledger_schema import RollbackReason, Rung, RungStatus


def facts(
    family: Family, share: float | None = 0.2, speedup: float | None = 2.0, task: str = ""
) -> GraftFacts:
    name = task or family.value
    return GraftFacts(name, name, family, "0" * 64, speedup, share)


DOWN, GATE = facts(Family.FFN_DOWN), facts(Family.FFN_GATE_UP, share=0.4, speedup=4.0)


def test_ladder_adds_one_graft_a_step_after_the_bare_graph() -> None:
    steps = ledger.ladder([DOWN, GATE])
    assert [(step.name, step.grafts, step.added) for step in steps] == [
        ("graph", (), None),
        ("+A ffn_down", ("ffn_down",), "ffn_down"),
        ("+B ffn_gate_up", ("ffn_down", "ffn_gate_up"), "ffn_gate_up"),
    ]


def test_ladder_names_stay_unique_when_a_family_has_two_tasks() -> None:
    steps = ledger.ladder([facts(Family.RMSNORM, task="one"), facts(Family.RMSNORM, task="two")])
    assert len({step.name for step in steps}) == 3


def test_projection_is_amdahl_over_the_grafts_and_unknown_if_a_part_is() -> None:
    assert ledger.projection([DOWN, GATE]) == pytest.approx(1 / (1 - 0.1 - 0.3))
    assert ledger.projection([DOWN, facts(Family.LM_HEAD, share=None)]) is None
    assert ledger.projection([facts(Family.LM_HEAD, speedup=None)]) is None


def test_configurations_pair_rounds_with_stock_and_with_the_step_before() -> None:
    samples = {"stock": [2.0, 4.0], "graph": [1.0, 2.0], "+A ffn_down": [0.5, 1.0]}
    rows = ledger.configurations(ledger.ladder([DOWN]), samples, {"ffn_down": DOWN}, {}, batch=2)
    assert [row.name for row in rows] == ["stock", "graph", "+A ffn_down"]
    assert [row.speedup.value for row in rows] == [1.0, 2.0, 4.0]
    assert rows[2].step_speedup is not None
    assert rows[2].step_speedup.value == 2.0
    assert rows[2].projected_speedup == pytest.approx(1 / 0.9)
    assert rows[0].tokens_per_s.value == pytest.approx((1.0 + 0.5) / 2)


def test_slower_is_rolled_back_only_beyond_measuring_error() -> None:
    stock, before = [1.0] * 4, [0.9] * 4
    found = ledger.judge_step(before, [0.95] * 4, stock, 0.2, keep_all=False)
    assert found is not None
    assert found[0] is RollbackReason.SLOWER
    assert ledger.judge_step(before, [0.88, 0.92, 0.88, 0.92], stock, 0.2, keep_all=False) is None
    assert ledger.judge_step(before, [0.8] * 4, stock, 0.2, keep_all=False) is None


def test_keep_all_disables_only_the_slower_rollback() -> None:
    stock, before = [1.0] * 4, [0.9] * 4
    assert ledger.judge_step(before, [1.2] * 4, stock, 0.2, keep_all=True) is None
    found = ledger.judge_step(before, [0.3] * 4, stock, 0.2, keep_all=True)
    assert found is not None
    assert found[0] is RollbackReason.IMPLAUSIBLE


def test_saving_more_than_the_operator_took_is_implausible() -> None:
    stock = [1.0] * 4
    assert ledger.judge_step(stock, [0.66] * 4, stock, 0.2, keep_all=False) is None  # within the slack
    found = ledger.judge_step(stock, [0.6] * 4, stock, 0.2, keep_all=False)
    assert found is not None
    assert found[0] is RollbackReason.IMPLAUSIBLE
    assert ledger.judge_step(stock, [0.6] * 4, stock, None, keep_all=False) is None  # share unknown


def rung_rows(
    samples: dict[str, list[float]], asked: tuple[Rung, ...], failures: dict[str, str] | None = None
):
    return ledger.rung_rows(asked, samples, failures or {}, 1, {}, {})


def headline(rows, final: list[float]):
    return ledger.headline(rows, final, model="m", device="cpu", dtype="bfloat16", batch=1)


def test_every_rung_has_a_row_with_its_status() -> None:
    rows = rung_rows({"eager": [1.0, 1.0]}, (Rung.EAGER, Rung.INDUCTOR), {"inductor": "no compiler"})
    found = {row.rung: (row.status, row.reason) for row in rows}
    assert found[Rung.EAGER][0] is RungStatus.MEASURED
    assert found[Rung.INDUCTOR] == (RungStatus.FAILED, "no compiler")
    assert found[Rung.SDPA][0] is RungStatus.LEFT_OUT
    assert "--rungs sdpa" in found[Rung.SDPA][1]


def test_headline_is_against_the_best_measured_rung_and_names_what_is_missing() -> None:
    both = (Rung.SDPA, Rung.EAGER)
    found = headline(rung_rows({"sdpa": [2.0, 2.0], "eager": [1.0, 1.0]}, both), [0.5, 0.5])
    assert found.rung is Rung.EAGER
    assert (found.speedup, found.stock_tokens_per_s, found.patched_tokens_per_s) == (2.0, 1.0, 2.0)
    assert found.stronger_left_out == (Rung.INDUCTOR_MAX, Rung.INDUCTOR)


def test_headline_says_so_when_stock_inductor_wins() -> None:
    rows = rung_rows({"eager": [1.0, 1.0], "inductor-max": [0.4, 0.4]}, (Rung.EAGER, Rung.INDUCTOR_MAX))
    found = headline(rows, [0.5, 0.5])
    assert found.rung is Rung.INDUCTOR_MAX
    assert found.speedup == pytest.approx(0.8)
    assert found.stronger_left_out == ()


def test_a_failed_stronger_rung_counts_as_left_out() -> None:
    rows = rung_rows({"eager": [1.0], "inductor": [0.9]}, (Rung.EAGER, Rung.INDUCTOR, Rung.INDUCTOR_MAX))
    assert headline(rows, [0.5]).stronger_left_out == (Rung.INDUCTOR_MAX,)

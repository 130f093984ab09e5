"""The policy: deterministic, never repeats itself, covers the space between trajectories, and listens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from extractor.task import Task
from optimizer.candidate import Candidate, Language
from optimizer.judge.verdict import Outcome, Quantiles, Verdict, WorkloadResult
from optimizer.machine import MachineFacts
from optimizer.policies.catalog import CatalogPolicy
from optimizer.policies.catalog.knobs import LinearKnobs
from optimizer.policies.catalog.plans import Plan
from optimizer.policies.catalog.ranking import Landscape, Prior, PriorUnreadable, Ranker, Slot, knob_key
from optimizer.policies.protocol import Completion, Conversation, StopReason, Turn
from tests.optimizer.policies.catalog import models
from tests.optimizer.policies.catalog.tracing import trace

MACHINE = MachineFacts(
    cpu="test", cpu_model="0", isa=("avx512_bf16", "avx512f", "avx2", "portable"), flags="", cores=2,
    l2_bytes=1 << 20, l3_bytes=32 << 20, compiler=None,
)  # fmt: skip
BF16 = torch.bfloat16


def linear_task() -> Task:
    batches = [[torch.zeros(m, 1, 512, dtype=BF16)] for m in (1, 4)]
    return Task(Path("nowhere"), trace(models.Linears(512, (256, 128)), batches, rows=(1, 4)))


def row_task() -> Task:
    inputs = [torch.zeros(1, 1, 64, dtype=BF16)] * 2
    return Task(Path("nowhere"), trace(models.ResidualNorm(models.RmsNorm(64)), [inputs]))


def policy(prior: Prior | None = None) -> CatalogPolicy:
    return CatalogPolicy(MACHINE, Prior() if prior is None else prior)


def plan_of(completion: Completion) -> Plan:
    plan = Plan.parse(completion.text)
    assert plan is not None
    return plan


def timed(plan: Plan, speeds: dict[str, float]) -> Verdict:
    """A correct verdict with these speedups by workload."""
    flat = Quantiles(p20=100.0, median=100.0, p80=100.0)
    results = tuple(
        WorkloadResult(
            workload=name,
            reference=flat,
            candidate=Quantiles(p20=100 / speed, median=100 / speed, p80=100 / speed),
        )
        for name, speed in speeds.items()
    )
    return Verdict(outcome=Outcome.CORRECT, reason="", results=results, speedup=1.0)


def failed(outcome: Outcome) -> Verdict:
    return Verdict(outcome=outcome, reason="no")


def play(task: Task, trajectory: int, turns: int, judge, prior: Prior | None = None) -> list[Plan]:
    """Run one trajectory against ``judge(plan) -> Verdict``."""
    writer, plans, seen = policy(prior), [], ()
    for index in range(turns):
        talk = Conversation(task, Language.CPP, trajectory, seen)
        completion = writer.complete(talk, seed=index)
        if completion.stop_reason is StopReason.EXHAUSTED:
            break
        source = completion.text.split("```cpp\n")[1].split("```")[0]
        plans.append(plan_of(completion))
        seen = (*seen, Turn(index, Candidate(Language.CPP, source), judge(plans[-1])))
    return plans


def steady(plan: Plan) -> Verdict:
    return timed(plan, {"decode-b1": 2.0, "decode-b4": 1.5})


def test_completion_is_one_block_and_deterministic() -> None:
    talk = Conversation(linear_task(), Language.CPP, 0)
    one, other = policy().complete(talk, seed=1), policy().complete(talk, seed=1)
    assert one == other
    assert one.text.count("```") == 2
    assert "kg_forward" in one.text
    assert one.notes["body"] == "avx512_bf16"
    assert "rows=" in one.notes["M=1"]
    assert Plan.parse(f"// plan: {plan_of(one)}") == plan_of(one)


@pytest.mark.parametrize("task", [linear_task(), row_task()], ids=["linear", "rows"])
def test_four_by_four_covers_sixteen_plans(task: Task) -> None:
    plans = [plan for trajectory in range(4) for plan in play(task, trajectory, 4, steady)]
    assert len(plans) == len(set(plans)) == 16


def test_a_trajectory_ends_when_its_plans_are_used_up_and_never_repeats() -> None:
    plans = play(row_task(), 1, 50, steady)
    assert 3 <= len(plans) < 50
    assert len(set(plans)) == len(plans)


@pytest.mark.parametrize(
    "outcome", [Outcome.WRONG, Outcome.BUILD_FAILED, Outcome.UNSUPPORTED, Outcome.CRASHED]
)
def test_a_failed_body_is_not_used_again(outcome: Outcome) -> None:
    plans = play(linear_task(), 0, 10, lambda plan: failed(outcome))
    assert [plan.body for plan in plans] == list(dict.fromkeys(plan.body for plan in plans))
    assert len(plans) == 4


def test_a_sandbox_failure_blames_nobody() -> None:
    plans = play(linear_task(), 0, 2, lambda plan: failed(Outcome.SANDBOX_FAILED))
    assert len(plans) == 2
    assert plans[0].body == plans[1].body
    assert plans[0] != plans[1]


def test_feedback_moves_towards_what_was_fast() -> None:
    def judge(plan: Plan) -> Verdict:
        """Software prefetch ruins this machine: the further ahead, the worse."""
        speed = {
            f"decode-b{slot}": 2.0 if knobs.ahead == 0 else 2.0 - knobs.ahead / 10000
            for slot, knobs in plan.schedules
            if isinstance(knobs, LinearKnobs)
        }
        return timed(plan, speed)

    def far(plans: list[Plan]) -> int:
        return sum(knobs.ahead for plan in plans[4:8] for _, knobs in plan.schedules)  # type: ignore[union-attr]

    assert far(play(linear_task(), 0, 8, judge)) < far(play(linear_task(), 0, 8, steady))


def test_the_fourth_turn_combines_the_best_schedule_of_each_m() -> None:
    speeds = iter([{"decode-b1": 3.0, "decode-b4": 1.0}, {"decode-b1": 1.0, "decode-b4": 3.0},
                   {"decode-b1": 1.0, "decode-b4": 1.0}, {}])  # fmt: skip
    plans = play(linear_task(), 0, 4, lambda plan: timed(plan, next(speeds)))
    assert plans[0].body == plans[1].body
    assert dict(plans[3].schedules) == {1: dict(plans[0].schedules)[1], 4: dict(plans[1].schedules)[4]}


def test_measured_neighbours_outrank_the_rule_of_thumb() -> None:
    odd = LinearKnobs(rows=4, unroll=1, ahead=0)
    others = LinearKnobs(rows=1, unroll=2, ahead=8192)
    speeds = {knob_key("avx512f", odd): 1.0, knob_key("avx512f", others): 0.5}
    near = Landscape(kind="linear", dtype="bfloat16", features=(9.0, 8.6, 0.0), speeds=speeds)
    completion = policy(Prior(landscapes=(near,))).complete(
        Conversation(linear_task(), Language.CPP, 0), seed=0
    )
    assert (1, odd) in plan_of(completion).schedules
    assert plan_of(completion).body == "avx512f"
    assert "measured neighbours" in completion.text
    far = near.model_copy(update={"features": (18.0, 18.0, 0.0)})
    ranker = Ranker(Prior(landscapes=(far,)), Slot("linear", "bfloat16", (9.0, 8.6, 0.0), 1))
    assert not ranker.neighbours


def test_what_the_catalog_cannot_do_it_says() -> None:
    talk = Conversation(linear_task(), Language.TRITON, 0)
    assert policy().complete(talk, seed=0).stop_reason is StopReason.EXHAUSTED
    task = linear_task()
    unknown = tuple(op.model_copy(update={"op": "mystery"}) for op in task.spec.ops)
    broken = replace(task, spec=task.spec.model_copy(update={"ops": unknown}))
    completion = policy().complete(Conversation(broken, Language.CPP, 0), seed=0)
    assert completion.stop_reason is StopReason.EXHAUSTED
    assert "No template" in completion.text


def test_the_shipped_prior_loads_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert Prior.load().schema_version == 1
    bad = tmp_path / "prior.json"
    bad.write_text("{]")
    with pytest.raises(PriorUnreadable, match=r"prior\.json"):
        Prior.load(bad)

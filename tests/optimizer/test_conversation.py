"""What a policy is told, and what is left out when the context is full."""

from pathlib import Path

import pytest

from extractor.task import Task
from optimizer.candidate import Candidate, Language
from optimizer.conversation import LOG_CHARACTERS, Briefing, feedback, language_rules
from optimizer.judge.verdict import Outcome, Verdict, WorkloadResult
from optimizer.policies.protocol import Role, Turn
from tests.optimizer.fakes import make_task, timed

CORRECT = Verdict(
    outcome=Outcome.CORRECT,
    reason="all checks passed",
    results=(timed("decode-b1", 2.0),),
    speedup=2.0,
    roofline=0.42,
)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path)


def turn(index: int, verdict: Verdict | None = CORRECT, size: int = 0) -> Turn:
    candidate = Candidate(Language.CPP, f"int kernel_{index};" + "x" * size) if verdict else None
    return Turn(index, candidate, verdict, summary=f"idea {index}")


def test_opening_states_task_shapes_machine_and_rules(task: Task) -> None:
    briefing = Briefing(task, Language.CPP, ("decode-b1",), machine="Zen 4, 26 GB/s")
    conversation = briefing.conversation(3, ())
    assert [m.role for m in conversation.messages] == [Role.SYSTEM, Role.USER]
    assert conversation.trajectory == 3
    assert conversation.turn == 0
    assert conversation.timed_workloads == ("decode-b1",)
    text = conversation.messages[1].content
    assert "return x * 2" in text
    assert "weight: weight [8] bfloat16" in text
    assert "decode-b1 (timed, M=1, 2 calls a step)" in text
    assert "prefill-b1-s32 (checked only" in text
    assert "x [1, 8] strides [8, 1] bfloat16" in text
    assert "Zen 4, 26 GB/s" in text
    assert "kg_forward" in text  # the C ABI
    assert "Inputs and weights are read-only" in text


@pytest.mark.parametrize("language", list(Language))
def test_every_language_has_rules(language: Language) -> None:
    assert ("kg_tensor" if language is Language.CPP else "ModelNew") in language_rules(language)


def test_earlier_turns_alternate_and_carry_feedback(task: Task) -> None:
    failed = Verdict(outcome=Outcome.WRONG, reason="output 0 differs", results=())
    turns = (turn(0, failed), turn(1, None), turn(2))
    messages = Briefing(task, Language.CPP, ()).conversation(0, turns).messages
    assert [m.role.value for m in messages] == ["system", "user"] + ["assistant", "user"] * 3
    assert "```cpp\nint kernel_0;\n```\nidea 0" in messages[2].content
    assert "wrong: output 0 differs" in messages[3].content
    assert messages[4].content == "(no kernel)"
    assert "could not be used: idea 1" in messages[5].content
    assert "Speedup over PyTorch eager: 2.00x" in messages[7].content
    assert "decode-b1: 50.0 us, eager 100.0 us" in messages[7].content
    assert "42%" in messages[7].content


def test_oldest_turns_are_left_out_first(task: Task) -> None:
    turns = tuple(turn(index, size=1000) for index in range(6))
    full = Briefing(task, Language.CPP, ()).conversation(0, turns)
    one = sum(len(m.content) for m in full.messages[2:4])
    opening = sum(len(m.content) for m in full.messages[:2])
    cut = Briefing(task, Language.CPP, (), limit=opening + 2 * one + 50).conversation(0, turns)
    assert len(full.messages) == 2 + 12
    assert len(cut.messages) == 2 + 4
    assert "kernel_4" in cut.messages[2].content
    assert "kernel_5" in cut.messages[4].content
    assert "(4 earlier turns left out for length.)" in cut.messages[1].content
    assert cut.turns == turns  # the structured part stays complete


def test_a_context_too_small_for_any_turn_still_states_the_task(task: Task) -> None:
    cut = Briefing(task, Language.CPP, (), limit=10).conversation(0, (turn(0), turn(1)))
    assert len(cut.messages) == 2
    assert "(2 earlier turns left out" in cut.messages[1].content


def test_length_can_be_measured_in_tokens(task: Task) -> None:
    briefing = Briefing(task, Language.CPP, (), limit=5, measure=lambda text: 1)
    # 2 for the opening leave room for one turn's two messages
    assert len(briefing.conversation(0, (turn(0), turn(1))).messages) == 4


def test_long_logs_keep_their_head_and_a_little_of_the_end() -> None:
    log = "kernel.cpp:3:1: error: the cause\n" + "note\n" * 5000 + "1 error generated"
    verdict = Verdict(outcome=Outcome.BUILD_FAILED, reason="compiler said no", log=log)
    text = feedback(Turn(0, Candidate(Language.CPP, "x"), verdict))
    assert "error: the cause" in text
    assert "1 error generated" in text
    assert len(text) < LOG_CHARACTERS + 500


def test_wrong_results_name_workload_and_place() -> None:
    results = (WorkloadResult(workload="decode-b4", detail="output 0 at [3, 17]: 1.5, expected 0.2"),)
    verdict = Verdict(outcome=Outcome.WRONG, reason="error is 40 times eager's", results=results)
    text = feedback(Turn(0, Candidate(Language.CPP, "x"), verdict))
    assert "decode-b4: output 0 at [3, 17]" in text


def test_every_outcome_has_a_headline() -> None:
    for outcome in Outcome:
        verdict = Verdict(outcome=outcome, reason="because")
        assert "because" in feedback(Turn(0, Candidate(Language.CPP, "x"), verdict))


def test_a_repeated_kernel_is_pointed_out(task: Task) -> None:
    again = Turn(2, turn(0).candidate, CORRECT)
    messages = Briefing(task, Language.CPP, ()).conversation(0, (turn(0), turn(1, None), again)).messages
    assert "the kernel of turn 0 again" in messages[-1].content
    assert "again" not in messages[3].content

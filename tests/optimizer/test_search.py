"""The GxT search of one task with a scripted policy and a scripted judge."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from extractor.progress import SilentProgress
from extractor.task import Task
from optimizer.candidate import Language
from optimizer.conversation import Briefing
from optimizer.judge.verdict import Outcome
from optimizer.scores import attempts_of
from optimizer.search import BadBudget, Budget, SearchEnd, SearchResult, search_task, turn_seed
from optimizer.store import RunStore, SearchKey, TrajectoryState
from tests.optimizer.fakes import FakeJudge, FakePolicy, kernel, make_task


class Counter(SilentProgress):
    """Counts steps and keeps messages."""

    def __init__(self) -> None:
        self.steps = 0
        self.messages: list[str] = []

    def advance(self, note: str = "", steps: int = 1) -> None:
        self.steps += steps

    def message(self, text: str) -> None:
        self.messages.append(text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.open(tmp_path) as opened:
        yield opened


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path / "tasks")


class Bench:
    """One task's search with the parts at hand."""

    def __init__(self, store: RunStore, task: Task) -> None:
        self.store = store
        self.briefing = Briefing(task, Language.CPP, ("decode-b1", "decode-b4"))
        self.key = SearchKey(task.spec.op_key, "fake", Language.CPP, "m", "s", 0)
        self.judge = FakeJudge()
        self.progress = Counter()

    def run(self, policy: FakePolicy, budget: str = "2x2", stop_at: float | None = None) -> SearchResult:
        return search_task(
            self.store,
            self.briefing,
            self.key,
            policy=policy,
            evaluator=self.judge,
            budget=Budget.parse(budget),
            progress=self.progress,
            stop_at=stop_at,
        )


@pytest.fixture
def bench(store: RunStore, task: Task) -> Bench:
    return Bench(store, task)


def test_round_robin_over_trajectories(bench: Bench) -> None:
    policy = FakePolicy([[kernel(1.0 + t, f"{g}{t}") for t in range(3)] for g in range(2)])
    result = bench.run(policy, "2x3")
    assert [(g, t) for g, t, _ in policy.asked] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert result.end is SearchEnd.BUDGET
    assert (result.counts.turns, result.counts.judged, result.counts.reused) == (6, 6, 0)
    assert attempts_of(bench.store, result.search) == [[1.0, 2.0, 3.0]] * 2
    assert bench.progress.steps == 6
    assert [m for m in bench.progress.messages if "best 3.00x" in m]


def test_trajectories_are_independent_and_see_their_own_past(bench: Bench) -> None:
    policy = FakePolicy([[kernel(1, "a"), kernel(0)], [kernel(-1), kernel(2, "b")]])
    bench.run(policy)
    second = next(c for c in policy.seen if c.trajectory == 1 and c.turn == 1)
    assert [t.verdict.outcome for t in second.turns if t.verdict] == [Outcome.WRONG]
    assert "speed 1 a" not in "".join(m.content for m in second.messages)


def test_duplicates_are_answered_from_the_cache(bench: Bench) -> None:
    same = kernel(1.5)
    policy = FakePolicy([[same, same], [same, kernel(2.0)]])
    result = bench.run(policy)
    assert len(bench.judge.judged) == 2
    assert (result.counts.judged, result.counts.reused) == (2, 2)
    assert attempts_of(bench.store, result.search) == [[1.5, 1.5], [1.5, 2.0]]
    repeated = next(c for c in policy.seen if c.trajectory == 1 and c.turn == 1)
    assert repeated.turns[0].verdict is not None


def test_unusable_answers_cost_their_turn_only(bench: Bench) -> None:
    policy = FakePolicy([["prose", kernel(2.0)], ["```cpp\nint kg_for", kernel(0)]])
    result = bench.run(policy)
    assert result.counts.unparsed == 2
    assert attempts_of(bench.store, result.search) == [[None, 2.0], [None, None]]
    told = next(c for c in policy.seen if c.trajectory == 0 and c.turn == 1)
    assert "no code block" in told.messages[-1].content


def test_exhausted_trajectories_end_and_the_others_go_on(bench: Bench) -> None:
    policy = FakePolicy([[kernel(1.0)], [kernel(2.0, str(t)) for t in range(3)]])
    result = bench.run(policy, "3x3")
    assert result.end is SearchEnd.BUDGET
    states = [(t.state, t.turns) for t in bench.store.trajectories(result.search)]
    assert states == [
        (TrajectoryState.EXHAUSTED, 1),
        (TrajectoryState.OPEN, 3),
        (TrajectoryState.EXHAUSTED, 0),
    ]
    assert bench.progress.steps == 9
    asked = len(policy.asked)
    bench.run(policy, "3x3")
    assert len(policy.asked) == asked  # exhausted ones are not asked again


@pytest.mark.parametrize(
    ("answers", "end"), [([[kernel(1)], [kernel(2)]], SearchEnd.EXHAUSTED), ([], SearchEnd.UNWRITABLE)]
)
def test_all_exhausted(bench: Bench, answers: list[list[str]], end: SearchEnd) -> None:
    assert bench.run(FakePolicy(answers)).end is end


def test_policy_failure_ends_its_trajectory_and_is_tried_again(bench: Bench) -> None:
    failing = FakePolicy([[kernel(1.0), "ERROR"], [kernel(2.0), kernel(3.0)]])
    result = bench.run(failing)
    assert result.end is SearchEnd.POLICY_FAILED
    assert result.detail == "the server is gone"
    assert attempts_of(bench.store, result.search) == [[1.0, None], [2.0, 3.0]]
    healed = FakePolicy([[kernel(1.0), kernel(4.0)], [kernel(2.0), kernel(3.0)]])
    again = bench.run(healed)
    assert again.end is SearchEnd.BUDGET
    assert [(g, t) for g, t, _ in healed.asked] == [(0, 1)]
    assert attempts_of(bench.store, again.search) == [[1.0, 4.0], [2.0, 3.0]]


def test_broken_judge_stops_the_search(bench: Bench) -> None:
    bench.judge.broken = True
    policy = FakePolicy([[kernel(1.0, f"{g}{t}") for t in range(4)] for g in range(4)])
    result = bench.run(policy, "4x4")
    assert result.end is SearchEnd.JUDGE_FAILED
    assert result.detail == "no user namespaces"
    assert result.counts.judged == 3
    assert len(bench.judge.judged) == 6  # each tried twice
    assert attempts_of(bench.store, result.search) == [[None] * 4] * 4


def test_stop_at_roofline(bench: Bench) -> None:
    answers = [[kernel(2.0, f"{g}{t}") for t in range(4)] for g in range(4)]
    answers[1][0] = kernel(9.0)  # 0.9 of the fake roofline
    result = bench.run(FakePolicy(answers), "4x4", stop_at=0.9)
    assert result.end is SearchEnd.ROOFLINE
    assert result.counts.turns == 2
    assert bench.progress.steps == 16
    again = bench.run(FakePolicy(answers), "4x4", stop_at=0.9)
    assert (again.end, again.counts.turns) == (SearchEnd.ROOFLINE, 0)
    more = bench.run(FakePolicy(answers), "4x4")
    assert more.counts.turns == 14


def test_finished_search_costs_nothing(bench: Bench) -> None:
    policy = FakePolicy([[kernel(1.0), kernel(2.0)], [kernel(3.0), kernel(4.0)]])
    bench.run(policy)
    again = bench.run(policy)
    assert (again.counts.turns, again.counts.resumed) == (0, 4)
    assert len(bench.judge.judged) == 4
    assert len(policy.asked) == 4
    assert bench.progress.steps == 8


def test_larger_budget_continues(bench: Bench) -> None:
    policy = FakePolicy([[kernel(1 + g + t, f"{g}{t}") for t in range(3)] for g in range(3)])
    bench.run(policy, "2x2")
    result = bench.run(policy, "3x3")
    assert result.counts.turns == 5
    assert [(g, t) for g, t, _ in policy.asked[4:]] == [(2, 0), (2, 1), (0, 2), (1, 2), (2, 2)]
    turn = next(c for c in policy.seen if c.trajectory == 0 and c.turn == 2)
    assert len(turn.turns) == 2


def test_interrupted_judging_resumes_without_asking_again(bench: Bench) -> None:
    class Interrupting(FakeJudge):
        def evaluate(self, candidate):  # type: ignore[no-untyped-def]
            if len(self.judged) == 2:
                raise KeyboardInterrupt
            return super().evaluate(candidate)

    policy = FakePolicy([[kernel(1.0), kernel(2.0)], [kernel(3.0), kernel(4.0)]])
    healthy, bench.judge = bench.judge, Interrupting()
    with pytest.raises(KeyboardInterrupt):
        bench.run(policy)
    assert len(policy.asked) == 3
    bench.judge = healthy
    result = bench.run(policy)
    assert len(policy.asked) == 4  # the third completion was judged, not paid for twice
    assert attempts_of(bench.store, result.search) == [[1.0, 2.0], [3.0, 4.0]]


def test_seeds_are_fixed_distinct_and_small(bench: Bench) -> None:
    policy = FakePolicy([[kernel(1.0, f"{g}{t}") for t in range(4)] for g in range(4)])
    bench.run(policy, "4x4")
    seeds = [seed for _, _, seed in policy.asked]
    assert len(set(seeds)) == 16
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert turn_seed(0, "abc", 1, 2) == 1191725729
    assert turn_seed(1, "abc", 1, 2) != turn_seed(0, "abc", 1, 2)


@pytest.mark.parametrize("text", ["", "4", "4x", "x4", "0x4", "4x0", "-1x4", "4x4x4", "4.5x4", "9999999x1"])
def test_bad_budgets(text: str) -> None:
    with pytest.raises(BadBudget, match="GxT"):
        Budget.parse(text)


def test_budget_round_trips() -> None:
    assert str(Budget.parse(" 16X4 ")) == "16x4"
    assert Budget.parse("16x4").total == 64

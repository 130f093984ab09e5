"""The optimize stage over a run folder: order, winners, grafts.json, rerunning, interruption."""

import os
import signal
from pathlib import Path

import pytest

from extractor.errors import KernelgraftError
from extractor.families import Family
from extractor.progress import SilentProgress
from extractor.run_folder import RunFolder, RunUnwritable, write_json
from extractor.schema import Health, Phase
from extractor.task import TASK_SIDECAR, load_tasks
from optimizer.grafts import GraftFile
from optimizer.optimize import (
    DeviceNotJudged,
    NoTasks,
    NotResumed,
    OptimizeReport,
    optimize,
    select_tasks,
    timed_workloads,
)
from optimizer.search import Budget, SearchEnd
from optimizer.store import RunStore
from optimizer.store_file import STORE_FILE, CorruptStore
from tests.optimizer.fakes import (
    MACHINE,
    FakeJudge,
    FakePolicy,
    FakeSettings,
    kernel,
    make_run,
    make_task,
    workload,
)

FAMILIES = (Family.FFN_GATE_UP, Family.FFN_DOWN, Family.SILU_GATE)
ANSWERS = [[kernel(1.2), kernel(1.5)], [kernel(0), kernel(-1)]]


class Log(SilentProgress):
    def __init__(self) -> None:
        self.total = self.steps = 0
        self.messages: list[str] = []

    def start(self, stage: str, total: int) -> None:
        self.total = total

    def advance(self, note: str = "", steps: int = 1) -> None:
        self.steps += steps

    def message(self, text: str) -> None:
        self.messages.append(text)


def go(
    run: RunFolder,
    policy: FakePolicy | None = None,
    judge: FakeJudge | None = None,
    log: Log | None = None,
    **options: object,
) -> OptimizeReport:
    chosen = judge if judge is not None else FakeJudge()
    settings = {"budget": Budget.parse("2x2"), "judge_settings": FakeSettings(), "machine": MACHINE}
    return optimize(
        run,
        policy=policy if policy is not None else FakePolicy(ANSWERS),
        progress=log,
        open_judge=lambda task, settings: chosen,
        **(settings | options),  # type: ignore[arg-type]
    )


def test_every_task_gets_its_winner(tmp_path: Path) -> None:
    run, log = make_run(tmp_path, FAMILIES), Log()
    report = go(run, log=log)
    assert [t.family for t in report.tasks] == list(FAMILIES)  # by share of the step, largest first
    assert [t.best for t in report.tasks] == [1.5] * 3
    loaded = GraftFile.load(run.path)
    assert loaded.complete
    assert loaded.machine == MACHINE.key
    assert loaded.grafts == report.grafts
    assert [g.family for g in loaded.grafts] == sorted(FAMILIES, key=lambda f: f.order)
    graft = loaded.grafts[0]
    assert graft.ratios == {"decode-b1": pytest.approx(1.5), "decode-b4": pytest.approx(1.5)}
    assert graft.rows == {"decode-b1": 1, "decode-b4": 4}
    assert (graft.trajectory, graft.turn, graft.policy, graft.notes) == (0, 1, "fake", {"knob": "1"})
    assert "speed 1.5" in (run.path / graft.source_file).read_text()
    assert log.steps == log.total == 12
    assert report.judged == 12
    assert "12 candidates judged" in report.summary


def test_a_candidate_may_win_one_workload_and_another_the_other(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    go(run, FakePolicy([[kernel(2.0)], [kernel(1.5, "b4")]]))  # 2/2 and 1.5/3
    grafts = GraftFile.load(run.path).grafts
    assert {g.workloads: round(g.speedup, 2) for g in grafts} == {("decode-b1",): 2.0, ("decode-b4",): 2.25}


def test_nothing_faster_is_no_graft(tmp_path: Path) -> None:
    run, log = make_run(tmp_path), Log()
    report = go(run, FakePolicy([[kernel(1.0), kernel(1.02)], [kernel(0.5), kernel(-1)]]), log=log)
    assert report.grafts == ()
    assert GraftFile.load(run.path).complete
    assert any("no kernel is clearly faster" in m and "1.02x" in m for m in log.messages)


def test_rerun_reuses_everything_and_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, FAMILIES)
    first = go(run)
    policy, judge, log = FakePolicy(ANSWERS), FakeJudge(), Log()
    again = go(run, policy, judge, log)
    assert (judge.judged, judge.opened, policy.asked) == ([], 0, [])
    assert again.grafts == first.grafts
    assert again.candidates_per_minute is None
    assert "nothing was judged again" in again.summary
    assert sum("stored turns reused" in m for m in log.messages) == 3


def test_without_resume_a_used_store_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    go(run, resume=False)
    with pytest.raises(NotResumed, match="4 turns"):
        go(run, resume=False)
    go(run, resume=False, seed=1)  # another search


def test_other_settings_are_judged_anew_and_other_seeds_share_verdicts(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    go(run)
    fresh, cached = FakeJudge(), FakeJudge()
    go(run, judge=fresh, judge_settings=FakeSettings(trials=9))
    go(run, judge=cached, seed=5)
    assert len(fresh.judged) == 4
    assert cached.judged == []


def test_changed_shapes_are_judged_anew(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    go(run)
    make_task(run.tasks_dir, share=0.5, batches=1)  # same operator, re-extracted for one batch
    judge = FakeJudge()
    go(run, judge=judge)
    assert len(judge.judged) == 4
    assert all(g.workloads == ("decode-b1",) for g in GraftFile.load(run.path).grafts)


def test_families_are_filtered_and_the_others_keep_their_grafts(tmp_path: Path) -> None:
    run = make_run(tmp_path, FAMILIES)
    go(run)
    report = go(run, families=[Family.SILU_GATE], seed=1)
    assert [t.family for t in report.tasks] == [Family.SILU_GATE]
    assert len(GraftFile.load(run.path).grafts) == 3


def test_absent_families_name_the_present_ones(tmp_path: Path) -> None:
    run = make_run(tmp_path, FAMILIES)
    with pytest.raises(NoTasks, match=r"no task of lm_head; the run has: ffn_down, ffn_gate_up, silu_gate"):
        go(run, families=[Family.LM_HEAD])


def test_empty_run_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(NoTasks, match="kernelgraft extract"):
        go(make_run(tmp_path, ()))


def test_a_task_the_policy_cannot_write_is_said_and_costs_nothing(tmp_path: Path) -> None:
    run, log, judge = make_run(tmp_path, FAMILIES), Log(), FakeJudge()
    report = go(run, FakePolicy(ANSWERS, refuses=frozenset({Family.FFN_DOWN})), judge, log)
    ends = {t.family: t.end for t in report.tasks}
    assert ends[Family.FFN_DOWN] is SearchEnd.UNWRITABLE
    assert judge.opened == 2
    assert any("skipped, no template for this family" in m for m in log.messages)
    assert log.steps == log.total


def test_interruption_keeps_what_was_found(tmp_path: Path) -> None:
    class Interrupting(FakeJudge):
        def evaluate(self, candidate):  # type: ignore[no-untyped-def]
            if len(self.judged) == 6:
                os.kill(os.getpid(), signal.SIGINT)
            return super().evaluate(candidate)

    run = make_run(tmp_path, FAMILIES)
    with pytest.raises(KeyboardInterrupt):
        go(run, judge=Interrupting())
    partial = GraftFile.load(run.path)
    assert not partial.complete
    assert {g.family: round(g.speedup, 2) for g in partial.grafts} == {
        Family.FFN_GATE_UP: 1.5,
        Family.FFN_DOWN: 1.2,  # under way: its best so far
    }
    judge = FakeJudge()
    report = go(run, judge=judge)
    assert len(judge.judged) == 6  # of 12
    assert len(report.grafts) == 3
    assert GraftFile.load(run.path).complete


def test_corrupt_store_is_one_sentence_and_nothing_is_lost(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    go(run)
    store, grafts = run.path / STORE_FILE, run.grafts_path.read_bytes()
    damaged = store.read_bytes()[:5000]
    store.write_bytes(damaged)
    with pytest.raises(CorruptStore, match="malformed"):
        go(run)
    assert store.read_bytes() == damaged
    assert run.grafts_path.read_bytes() == grafts


def test_full_disk_for_grafts_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)
    go(run)
    before = run.grafts_path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunUnwritable, match="no space left"):
        go(run)
    assert run.grafts_path.read_bytes() == before


def test_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(KernelgraftError, match="kernelgraft extract"):
        go(RunFolder(tmp_path / "nowhere"))


def test_tasks_of_one_phase_only_are_timed_there(tmp_path: Path) -> None:
    task = make_task(tmp_path)
    assert timed_workloads(task) == ("decode-b1", "decode-b4")
    prefill = workload("prefill-b1-s32", Phase.PREFILL, 32, None)
    object.__setattr__(task, "spec", task.spec.model_copy(update={"workloads": (prefill,)}))
    assert timed_workloads(task) == ("prefill-b1-s32",)


def test_promising_tasks_come_first_when_resumed(tmp_path: Path) -> None:
    run = make_run(tmp_path, FAMILIES)  # shares .5, .25, .167
    go(run, families=[Family.FFN_GATE_UP], judge=FakeJudge(roofline=0.95))
    report = go(run, budget=Budget.parse("3x2"))
    assert [t.family for t in report.tasks] == [Family.FFN_DOWN, Family.SILU_GATE, Family.FFN_GATE_UP]


def test_store_is_closed_after_the_stage(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    go(run)
    assert not (run.path / f"{STORE_FILE}-wal").exists()  # folded in by the last close
    assert select_tasks(run)
    with RunStore.open(run.path, readonly=True) as store:
        assert store.query("SELECT count(*) FROM turns") == [(4,)]


def test_a_run_of_another_device_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, FAMILIES)
    write_json(run.manifest_path, run.manifest.model_copy(update={"device": "cuda:0"}))
    with pytest.raises(DeviceNotJudged, match=r"'cuda:0'.*use --device cpu"):
        go(run)


def test_sick_tasks_are_searched_only_on_request(tmp_path: Path) -> None:
    run = make_run(tmp_path, FAMILIES)
    sick = next(task for task in load_tasks(run.tasks_dir) if task.spec.family is Family.SILU_GATE)
    health = Health(bit_exact=True, flags=("output 0 is constant",))
    write_json(sick.folder / TASK_SIDECAR, sick.spec.model_copy(update={"health": health}))
    log = Log()
    report = go(run, log=log)
    assert {task.family for task in report.tasks} == set(FAMILIES) - {Family.SILU_GATE}
    assert [m for m in log.messages if "left out" in m] == [
        "G silu_gate: left out, a wrong kernel could pass (output 0 is constant); --include-sick searches it too"
    ]
    with pytest.raises(NoTasks, match="without health flags; --include-sick searches it too"):
        go(run, families=[Family.SILU_GATE])
    report = go(run, families=[Family.SILU_GATE], include_sick=True)
    assert [task.best for task in report.tasks] == [1.5]
    assert len(GraftFile.load(run.path).grafts) == len(FAMILIES)

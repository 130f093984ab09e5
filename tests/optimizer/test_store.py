"""The run store: what it keeps, and one sentence for every way its files can be wrong."""

import os
import sqlite3
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from extractor.errors import KernelgraftError
from extractor.run_folder import RunUnwritable
from extractor.task import Task
from optimizer.candidate import Candidate, Language
from optimizer.judge.verdict import Outcome, Verdict, WorkloadResult
from optimizer.policies.protocol import Completion, StopReason
from optimizer.store import RunStore, SearchKey, TrajectoryState
from optimizer.store_file import STORE_FILE, BusyStore, CorruptStore, NoStore
from tests.optimizer.fakes import make_task, timed

CANDIDATE = Candidate(Language.CPP, "int kg_forward(); // ü\n", {"unroll": "4"})
COMPLETION = Completion("text", token_ids=(1, 70000), logprobs=(-0.5, -2.0), notes={"unroll": "4"})
CORRECT = Verdict(outcome=Outcome.CORRECT, reason="ok", results=(timed("decode-b1", 2.0),), speedup=2.0)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path / "tasks")


@pytest.fixture
def key(task: Task) -> SearchKey:
    return SearchKey(task.spec.op_key, "fake", Language.CPP, "machine", "settings", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a run with spaces #1 ?%20"


@pytest.fixture
def store(folder: Path) -> Iterator[RunStore]:
    with RunStore.open(folder) as opened:
        yield opened


def begin(store: RunStore, search: int, turn: int = 0, candidate: Candidate | None = CANDIDATE) -> None:
    store.record_completion(
        search,
        0,
        turn,
        COMPLETION,
        seed=7,
        seconds=0.1,
        candidate=candidate,
        failure="" if candidate else "prose",
    )


def test_a_turn_is_kept_whole(store: RunStore, task: Task, key: SearchKey) -> None:
    search = store.search(task, key, trajectories=2, turns=4)
    begin(store, search)
    store.record_verdict(search, 0, 0, key, CANDIDATE, CORRECT, seconds=0.5)
    begin(store, search, 1, None)
    first, second = store.turns(search, 0)
    assert first.candidate == CANDIDATE
    assert first.candidate.notes == {"unroll": "4"}
    assert first.verdict == CORRECT  # raw samples included
    assert second.candidate is None
    assert second.summary == "prose"
    assert [t.turns for t in store.trajectories(search)] == [2, 0]
    ((ids, logprobs, seed),) = store.query("SELECT token_ids, logprobs, seed FROM completions WHERE turn = 0")
    assert array("i", ids).tolist() == [1, 70000]
    assert array("f", logprobs).tolist() == [-0.5, -2.0]
    assert seed == 7


def test_a_completion_without_verdict_awaits_judging(store: RunStore, task: Task, key: SearchKey) -> None:
    search = store.search(task, key, trajectories=1, turns=4)
    begin(store, search)
    (trajectory,) = store.trajectories(search)
    assert trajectory.turns == 0
    assert trajectory.pending == CANDIDATE
    assert store.turns(search, 0) == ()


def test_a_failed_policy_leaves_the_turn_to_be_tried_again(
    store: RunStore, task: Task, key: SearchKey
) -> None:
    search = store.search(task, key, trajectories=1, turns=4)
    gone = Completion("gone", StopReason.ERROR)
    store.record_completion(search, 0, 0, gone, seed=7, seconds=0.1, candidate=None, failure="gone")
    store.end_trajectory(search, 0, TrajectoryState.FAILED, "gone")
    (trajectory,) = store.trajectories(search)
    assert (trajectory.state, trajectory.turns, trajectory.pending) == (TrajectoryState.FAILED, 0, None)
    begin(store, search)
    assert store.query("SELECT text FROM completions") == [("text",)]


def test_verdicts_are_cached_by_task_source_machine_and_settings(
    store: RunStore, task: Task, key: SearchKey
) -> None:
    search = store.search(task, key, trajectories=1, turns=4)
    begin(store, search)
    store.record_verdict(search, 0, 0, key, CANDIDATE, CORRECT, seconds=0.5)
    known = store.known_verdict(key, CANDIDATE.sha)
    assert known is not None
    assert known[1] == CORRECT
    assert store.known_verdict(key, "0" * 64) is None
    for field in ("op_key", "machine", "settings"):
        other = SearchKey(**{**key.__dict__, field: "other"})
        assert store.known_verdict(other, CANDIDATE.sha) is None
    for field in ("policy", "seed"):  # who wrote it does not matter
        other = SearchKey(**{**key.__dict__, field: "other"})
        assert store.known_verdict(other, CANDIDATE.sha) is not None


def test_failures_of_the_judge_are_kept_but_not_cached(store: RunStore, task: Task, key: SearchKey) -> None:
    search = store.search(task, key, trajectories=1, turns=4)
    broken = Verdict(outcome=Outcome.SANDBOX_FAILED, reason="no namespaces")
    for turn in range(2):
        begin(store, search, turn)
        store.record_verdict(search, 0, turn, key, CANDIDATE, broken, seconds=0.5)
    assert store.known_verdict(key, CANDIDATE.sha) is None
    assert store.query("SELECT count(*) FROM verdicts") == [(2,)]


def test_infinite_errors_survive(store: RunStore, task: Task, key: SearchKey) -> None:
    search = store.search(task, key, trajectories=1, turns=1)
    begin(store, search)
    result = WorkloadResult(workload="decode-b1", error=float("inf"))
    verdict = Verdict(outcome=Outcome.WRONG, reason="overflow", results=(result,))
    store.record_verdict(search, 0, 0, key, CANDIDATE, verdict, seconds=0.5)
    assert store.turns(search, 0)[0].verdict == verdict


def test_a_verdict_of_another_shape_is_one_sentence(store: RunStore, task: Task, key: SearchKey) -> None:
    search = store.search(task, key, trajectories=1, turns=1)
    begin(store, search)
    store.record_verdict(search, 0, 0, key, CANDIDATE, CORRECT, seconds=0.5)
    store.query('UPDATE verdicts SET body = \'{"outcome": "splendid"}\'')
    for read in (lambda: store.turns(search, 0), lambda: store.correct_verdicts(key)):
        with pytest.raises(CorruptStore, match="a verdict does not parse"):
            read()


def test_a_larger_budget_extends_and_a_smaller_one_keeps(store: RunStore, task: Task, key: SearchKey) -> None:
    search = store.search(task, key, trajectories=2, turns=2)
    assert store.search(task, key, trajectories=4, turns=1) == search
    assert len(store.trajectories(search)) == 4
    planned = store.query("SELECT planned_trajectories, planned_turns FROM searches")
    assert planned == [(4, 2)]


def test_a_half_done_transaction_leaves_nothing(store: RunStore, task: Task, key: SearchKey) -> None:
    search = store.search(task, key, trajectories=1, turns=1)
    with pytest.raises(sqlite3.IntegrityError):  # trajectory 5 does not exist: the last insert's parent
        store.record_completion(search, 5, 0, COMPLETION, seed=0, seconds=0, candidate=CANDIDATE)
    assert store.query("SELECT count(*) FROM candidates") == [(0,)]
    begin(store, search)  # and the store is still usable


def test_write_ahead_log_and_foreign_keys_are_on(store: RunStore) -> None:
    assert store.query("PRAGMA journal_mode") == [("wal",)]
    assert store.query("PRAGMA foreign_keys") == [(1,)]
    assert store.query("PRAGMA synchronous")[0][0] >= 1


def test_reader_sees_what_a_writer_committed(
    store: RunStore, folder: Path, task: Task, key: SearchKey
) -> None:
    search = store.search(task, key, trajectories=1, turns=1)
    begin(store, search)
    with RunStore.open(folder, readonly=True) as reader:
        assert reader.trajectories(search)[0].pending == CANDIDATE
        with pytest.raises(RunUnwritable):
            reader.search(task, key, trajectories=9, turns=9)


def test_a_second_writer_waits_and_then_says_so(
    store: RunStore, folder: Path, task: Task, key: SearchKey
) -> None:
    with RunStore.open(folder) as other:
        store.query("PRAGMA busy_timeout = 50")
        other._db.execute("BEGIN IMMEDIATE")
        with pytest.raises(BusyStore, match="locked by another process"):
            store.search(task, key, trajectories=1, turns=1)
        other._db.execute("ROLLBACK")
    assert store.search(task, key, trajectories=1, turns=1)


def close_store(folder: Path) -> Path:
    RunStore.open(folder).close()
    return folder / STORE_FILE


def refused(folder: Path, *, readonly: bool = False) -> str:
    """The one sentence; and the file is left as it was."""
    path = folder / STORE_FILE
    before = path.read_bytes()
    with pytest.raises(CorruptStore) as caught:
        RunStore.open(folder, readonly=readonly)
    assert path.read_bytes() == before
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("readonly", [False, True])
def test_not_sqlite(folder: Path, readonly: bool) -> None:
    close_store(folder).write_text("this is no database, whatever its name says " * 200)
    assert "not a database" in refused(folder, readonly=readonly)


def test_truncated(folder: Path) -> None:
    path = close_store(folder)
    os.truncate(path, path.stat().st_size // 2)
    assert "malformed" in refused(folder)


def test_emptied(folder: Path) -> None:
    close_store(folder).write_bytes(b"")
    assert "empty" in refused(folder)


def test_other_programs_file(folder: Path) -> None:
    folder.mkdir()
    with sqlite3.connect(folder / STORE_FILE) as db:
        db.execute("CREATE TABLE schema_version (version INTEGER)")
    assert "another program" in refused(folder)


def test_other_schema_version(folder: Path) -> None:
    with sqlite3.connect(close_store(folder)) as db:
        db.execute("UPDATE schema_version SET version = 99")
    db.close()
    assert "schema version 99, this kernelgraft reads 1" in refused(folder)


def test_store_without_version_row(folder: Path) -> None:
    with sqlite3.connect(close_store(folder)) as db:
        db.execute("DELETE FROM schema_version")
    db.close()
    assert "schema version" in refused(folder)


def test_garbage_inside(folder: Path, task: Task, key: SearchKey) -> None:
    with RunStore.open(folder) as store:
        search = store.search(task, key, trajectories=1, turns=1)
    path = folder / STORE_FILE
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)  # every page but the schema's
    path.write_bytes(data)
    with pytest.raises(CorruptStore, match="malformed"), RunStore.open(folder) as store:
        store.trajectories(search)


def test_absent_store_is_never_created_by_a_reader(folder: Path) -> None:
    with pytest.raises(NoStore, match="kernelgraft optimize"):
        RunStore.open(folder, readonly=True)
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["changed", "missing", "binary"])
def test_damaged_source(store: RunStore, task: Task, key: SearchKey, damage: str) -> None:
    search = store.search(task, key, trajectories=1, turns=1)
    begin(store, search)
    path = store.folder / store.source_file(CANDIDATE.sha, CANDIDATE.language)
    match damage:
        case "changed":
            path.write_text("int other;")
        case "missing":
            path.unlink()
        case "binary":
            path.write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptStore, match=r"\.cpp") as caught:
        store.trajectories(search)
    assert "nothing was changed" in str(caught.value)
    assert "move run.sqlite away" in str(caught.value)  # the source alone would be missed again
    begin(store, search)  # proposing the same source again repairs it
    assert store.trajectories(search)[0].pending == CANDIDATE


def test_full_disk_while_writing_a_source(
    store: RunStore, task: Task, key: SearchKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = store.search(task, key, trajectories=1, turns=1)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunUnwritable, match="no space left"):
            begin(store, search)
    assert list((store.folder / "sources").iterdir()) == []
    assert store.trajectories(search)[0].pending is None


def test_full_disk_inside_sqlite(store: RunStore, task: Task, key: SearchKey) -> None:
    search = store.search(task, key, trajectories=1, turns=100)
    (pages,) = store.query("PRAGMA page_count")[0]
    store.query(f"PRAGMA max_page_count = {pages + 2}")
    candidates = [Candidate(Language.CPP, f"int kg_forward_{turn}();") for turn in range(100)]
    with pytest.raises(RunUnwritable, match="full"):
        [begin(store, search, turn, candidate) for turn, candidate in enumerate(candidates)]
    store.query("PRAGMA max_page_count = 1000000")
    kept = store.query("SELECT count(*) FROM turns")[0][0]
    assert store.query("SELECT count(*) FROM completions") == [(kept,)]  # no half turns


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(KernelgraftError, match="file is in the way"):
        RunStore.open(tmp_path / "file" / "run")

"""Real processes, really killed: what a search has measured survives, and resuming repeats at most one turn."""

import ctypes
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from extractor.run_folder import RunBusy, RunFolder
from optimizer.grafts import GraftFile
from optimizer.store import RunStore
from tests.optimizer.fakes import make_run
from tests.optimizer.search_process import run_search

LIMIT_S = 20.0


def start(folder: Path, seconds: float = 0.02, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.optimizer.search_process", str(folder), str(seconds)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


def started(folder: Path) -> int:
    """Candidates whose judging has begun."""
    tally = folder / "judged.txt"
    return len(tally.read_text().splitlines()) if tally.exists() else 0


def wait_for(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while started(folder) < count:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.002)


def finish(process: subprocess.Popen[str], with_signal: int | None = None) -> tuple[int, str]:
    if with_signal is not None:
        process.send_signal(with_signal)
    _, stderr = process.communicate(timeout=LIMIT_S)
    return process.returncode, stderr


def dump(folder: Path) -> list[tuple]:
    """Everything a finished search says, without ids and times."""
    with RunStore.open(folder, readonly=True) as store:
        return store.query(
            "SELECT u.trajectory, u.turn, u.sha, u.done, v.body, c.text, c.seed FROM turns u"
            " JOIN verdicts v ON v.id = u.verdict JOIN completions c USING (search, trajectory, turn)"
            " ORDER BY u.trajectory, u.turn"
        )


def test_kill_nine_and_resume(tmp_path: Path) -> None:
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    make_run(plain)
    make_run(killed)
    run_search(plain)
    for kills, count in enumerate((1, 5, 11), 1):  # three processes, each killed in the middle of judging
        process = start(killed)
        wait_for(killed, count, process)
        code, _ = finish(process, signal.SIGKILL)
        assert code == -signal.SIGKILL
        with RunStore.open(killed, readonly=True) as store:
            assert store.query("PRAGMA integrity_check") == [("ok",)]
            (done,) = store.query("SELECT count(*) FROM turns WHERE done = 1")[0]
        assert done >= count - kills
    report = run_search(killed)
    assert report.tasks[0].counts.resumed >= 8
    assert started(killed) <= 16 + 3  # each kill costs at most the turn in flight
    assert dump(killed) == dump(plain)
    assert GraftFile.load(killed) == GraftFile.load(plain)


def test_kill_at_random_moments_never_harms_the_store(tmp_path: Path) -> None:
    make_run(tmp_path)
    for pause in (0.0, 0.004, 0.009):  # a fast judge: most of the time goes to the store
        process = start(tmp_path, seconds=0.0)
        wait_for(tmp_path, 1, process)
        time.sleep(pause)
        process.kill()
        process.communicate(timeout=LIMIT_S)
        with RunStore.open(tmp_path) as store:
            assert store.query("PRAGMA integrity_check") == [("ok",)]
            assert store.query("PRAGMA foreign_key_check") == []
            half = "SELECT count(*) FROM turns LEFT JOIN completions USING (search, trajectory, turn)"
            assert store.query(f"{half} WHERE text IS NULL") == [(0,)]
    assert run_search(tmp_path).tasks[0].best == pytest.approx(1.33)


def test_interrupt_leaves_a_consistent_run(tmp_path: Path) -> None:
    make_run(tmp_path)
    process = start(tmp_path, seconds=0.05)
    wait_for(tmp_path, 6, process)
    code, stderr = finish(process, signal.SIGINT)
    assert code in (-signal.SIGINT, 130)
    assert "KeyboardInterrupt" in stderr
    partial = GraftFile.load(tmp_path)
    assert not partial.complete
    assert partial.grafts  # the best so far of the task that was under way
    assert run_search(tmp_path).tasks[0].counts.resumed >= 5


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    make_run(tmp_path)
    process = start(tmp_path, seconds=0.1)
    wait_for(tmp_path, 1, process)
    with pytest.raises(RunBusy, match=str(process.pid)):
        run_search(tmp_path)
    with RunStore.open(tmp_path, readonly=True) as reader:  # a report may read meanwhile
        assert reader.query("SELECT count(*) FROM searches") == [(1,)]
    finish(process, signal.SIGKILL)
    with RunFolder(tmp_path).lock():  # a killed process holds nothing
        pass


def test_no_space_left(tmp_path: Path) -> None:
    make_run(tmp_path)

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))

    process = start(tmp_path, seconds=0.0, preexec_fn=small_files)
    code, stderr = finish(process)
    assert code == 1
    assert "RunUnwritable: cannot write" in stderr.splitlines()[-1]
    assert run_search(tmp_path).tasks[0].best == pytest.approx(1.33)


def drop_capabilities() -> None:
    """Make root obey file permissions: forget all capabilities, and do not regain them at exec."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(28, 1, 0, 0, 0)  # PR_SET_SECUREBITS, SECBIT_NOROOT
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    if libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def test_read_only_folder(tmp_path: Path) -> None:
    make_run(tmp_path)
    run_search(tmp_path)
    (tmp_path / ".lock").chmod(0o666)
    tmp_path.chmod(0o555)
    (tmp_path / "run.sqlite").chmod(0o444)
    try:
        code, stderr = finish(start(tmp_path, preexec_fn=drop_capabilities))
        assert code == 1
        assert "RunUnwritable: cannot write" in stderr.splitlines()[-1]
        script = "import sys, pathlib; from optimizer.store import RunStore as S\n"
        script += (
            "print(S.open(pathlib.Path(sys.argv[1]), readonly=True).query('SELECT count(*) FROM turns'))"
        )
        reader = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=drop_capabilities,
        )
        assert reader.stdout == "[(16,)]\n"  # a report can still be made
    finally:
        tmp_path.chmod(0o755)

"""Each wall, raised in a child process and tried from inside."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from optimizer.judge.isolation import WallPlan, probe, sandboxed_command, system_read_paths
from optimizer.judge.isolation.launch import isolated_python
from optimizer.judge.isolation.walls import Wall, _attempt

EVERY_WALL = {"namespaces", "parent death", "rlimits", "landlock", "seccomp", "process group"}


def _shell(plan: WallPlan, script: str) -> subprocess.CompletedProcess[str]:
    command = sandboxed_command(plan, ["/bin/sh", "-c", script])
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def _plan(**changes: object) -> WallPlan:
    plan = WallPlan(read=system_read_paths(sys.executable), write=("/dev/null",), syscalls="compiler")
    return plan._replace(**changes)


def _stands(name: str) -> None:
    wall = next(wall for wall in probe() if wall.name == name)
    if not wall.on:
        pytest.skip(f"{name} is not available here: {wall.why}")


def test_probe_reports_every_wall_with_a_reason() -> None:
    walls = probe()
    assert {wall.name for wall in walls} == EVERY_WALL
    assert all(wall.why for wall in walls)


def test_a_missing_wall_is_reported_not_hidden() -> None:
    def fail() -> None:
        raise OSError(1, "Operation not permitted")

    assert _attempt("landlock", "files", fail) == Wall("landlock", False, "Operation not permitted (errno 1)")


def test_landlock_opens_only_the_named_files(tmp_path: Path) -> None:
    _stands("landlock")
    inside, outside = tmp_path / "in side", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("x")
    plan = _plan(write=("/dev/null", str(inside)))
    script = f'echo y > "{inside}/made"; cat "{outside}/secret"; echo z > "{outside}/made"; cat /etc/passwd'
    answer = _shell(plan, script)
    assert answer.stderr.count("ermission denied") == 3
    assert (inside / "made").read_text() == "y\n"
    assert not (outside / "made").exists()


def test_no_network_and_no_tracing(tmp_path: Path) -> None:
    _stands("seccomp")
    python = tmp_path / "a folder" / "python"  # this interpreter, by a path with a space
    python.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    code = "import socket\ntry: socket.socket()\nexcept OSError as e: print('refused', e.errno)"
    answer = _shell(_plan(), shlex.join([str(python), "-I", "-S", "-c", code]))
    assert answer.stdout.startswith("refused 1"), answer.stderr


def test_limits_are_set() -> None:
    answer = _shell(_plan(cpu_seconds=7, address_space=1 << 30), "ulimit -t; ulimit -v; ulimit -c")
    assert answer.stdout.split() == ["7", str(1 << 20), "0"]


def test_plan_survives_json() -> None:
    plan = _plan(threads=3, address_space=5)
    assert WallPlan.from_json(plan.to_json()) == plan


def test_the_worker_profile_starts_no_process() -> None:
    _stands("seccomp")
    code = (
        "import os, sys; from optimizer.judge.isolation.walls import WallPlan, raise_walls\n"
        "raise_walls(WallPlan.from_json(sys.argv[1]))\n"
        "for f in (os.fork, lambda: os.execv('/bin/true', ['true']), lambda: os.kill(os.getppid(), 0)):\n"
        "    try: f()\n"
        "    except OSError as e: os.write(1, b'%d ' % e.errno)\n"
    )
    root = isolated_python("x")[4].split("'")[1]
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {root!r})\n{code}"]
    answer = subprocess.run(
        [*command, _plan(syscalls="worker").to_json()],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert answer.stdout.split() == ["1", "1", "1"], answer.stderr


def test_a_killed_judge_leaves_no_worker(tmp_path: Path, build_cache: Path) -> None:
    """kill -9 on the judge while a candidate hangs: the worker dies with it."""
    _stands("parent death")
    script = tmp_path / "judge.py"
    script.write_text(
        "import sys, pathlib\n"
        "from optimizer.candidate import Candidate, Language\n"
        "from optimizer.judge.judge import Judge, JudgeSettings\n"
        "from tests.optimizer.fixtures import kernels, tasks\n"
        "task = tasks.silu_gate(pathlib.Path(sys.argv[1]))\n"
        "with Judge(task, JudgeSettings(cache_dir=sys.argv[2], timing=False)) as judge:\n"
        "    print('judging', flush=True)\n"
        "    judge.evaluate(Candidate(Language.CPP, kernels.silu('for (volatile int i = 0;; ++i) {}')))\n"
    )
    root = str(Path(__file__).parents[3])
    judge = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), str(build_cache)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert judge.stdout is not None
        assert judge.stdout.readline() == b"judging\n"
        worker = _wait_for_child(judge.pid)
    finally:
        judge.send_signal(signal.SIGKILL)
        judge.wait()
        assert judge.stdout is not None
        judge.stdout.close()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{worker}").exists()


def _wait_for_child(parent: int) -> int:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    command = Path(f"/proc/{name}/cmdline").read_bytes()
                    status = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(status[1]) == parent and b"optimizer.judge.worker" in command:
                    return int(name)
        time.sleep(0.02)
    raise AssertionError("no worker was started")

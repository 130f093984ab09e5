"""The system calls that workers of Python candidates are left with, tried from inside."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from optimizer.judge.isolation import WallPlan, probe, system_read_paths

ATTEMPTS = """
import json, os, socket, subprocess, sys, threading, time
sys.path.insert(0, sys.argv[2])
from optimizer.judge.isolation import WallPlan, raise_last_wall, raise_outer_walls

waiting = threading.Event()
early = threading.Thread(target=waiting.wait)
if sys.argv[3] == "early":
    early.start()
plan = WallPlan.from_json(sys.argv[1])
raised = [*raise_outer_walls(plan), raise_last_wall(plan)]
found = {}

def attempt(name, action):
    try:
        action()
        found[name] = True
    except (OSError, RuntimeError):
        found[name] = False

def fork():
    if os.fork() == 0:
        os._exit(0)

attempt("fork", fork)
attempt("program", lambda: subprocess.run(["/bin/true"]))
attempt("thread", lambda: threading.Thread(target=time.time).start())
attempt("signal", lambda: os.kill(os.getppid(), 0))
attempt("socket", lambda: socket.socket())
attempt("list", lambda: os.listdir("/usr"))
if sys.argv[3] == "early":
    status = open("/proc/self/task/%d/status" % early.native_id).read()
    found["early thread confined"] = "Seccomp:\\t2" in status
    waiting.set()
print(json.dumps(found), flush=True)
"""


def tried(profile: str, threads: int, start: str) -> dict[str, bool]:
    if not next(wall for wall in probe() if wall.name == "seccomp").on:
        pytest.skip("seccomp is not available here")
    plan = WallPlan(
        read=(*system_read_paths(sys.executable), ".", "/proc"), write=(), syscalls=profile, threads=threads
    )
    command = [sys.executable, "-I", "-S", "-c", ATTEMPTS, plan.to_json(), ".", start]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert answer.stdout, answer.stderr
    found: dict[str, bool] = json.loads(answer.stdout)
    return found


def test_an_interpreter_reads_and_does_nothing_else() -> None:
    found = tried("python", 1, "alone")
    expected = dict.fromkeys(("fork", "program", "thread", "signal", "socket"), False)
    assert found == expected | {"list": True}


def test_a_device_worker_starts_threads_but_no_process() -> None:
    found = tried("device", 64, "early")
    assert found["thread"]
    assert [name for name in ("fork", "program", "signal") if found[name]] == []
    assert found["early thread confined"]  # threads that were there before the wall


def test_a_tool_starts_programs_and_makes_sockets() -> None:
    found = tried("tool", 4, "alone")
    assert found["program"]
    assert found["socket"]


def test_a_builder_starts_programs_but_reaches_nothing() -> None:
    found = tried("builder", 4, "alone")
    assert found["fork"]
    assert found["program"]
    assert not found["socket"]

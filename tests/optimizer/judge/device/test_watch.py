import os
import subprocess
import sys
import time

import pytest

from optimizer.judge.device import watch
from optimizer.judge.device.watch import ManagementUnavailable, MemoryWatch, memory_walls


class Told:
    """A management library that says what it is told to say."""

    def __init__(self, used: dict[int, int]) -> None:
        self.answer = used

    def used(self) -> dict[int, int]:
        return self.answer


@pytest.fixture(autouse=True)
def _no_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(MemoryWatch, "_device_used", lambda self: 0)
    monkeypatch.setattr(watch, "POLL_S", 0.005)


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    yield process
    process.kill()
    process.wait()


def test_a_worker_over_its_limit_is_killed(sleeper):
    with MemoryWatch(sleeper.pid, 1 << 30, Told({sleeper.pid: 3 << 30})) as looked:
        assert sleeper.wait(5) == -9
        time.sleep(0.05)
    assert "3.0 GiB" in looked.problem


def test_a_modest_worker_and_other_processes_are_left_alone(sleeper):
    with MemoryWatch(sleeper.pid, 1 << 30, Told({sleeper.pid: 1 << 20, os.getpid(): 9 << 30})) as looked:
        time.sleep(0.05)
    assert sleeper.poll() is None
    assert looked.problem == ""


def test_a_library_that_does_not_answer_kills_nobody(sleeper):
    class Silent:
        def used(self) -> dict[int, int]:
            raise ManagementUnavailable("busy")

    with MemoryWatch(sleeper.pid, 1, Silent()) as looked:
        time.sleep(0.05)
    assert sleeper.poll() is None
    assert looked.problem == ""


def test_walls_say_what_is_not_enforced():
    assert all(wall.on for wall in memory_walls(1 << 30, ""))
    cap, watched = memory_walls(1 << 30, "no library")
    assert cap.on
    assert not watched.on
    assert "no library" in watched.why

"""Run one candidate under one of NVIDIA's tools, behind walls of its own.

A tool starts the program it looks at and speaks with it over sockets, so neither fits into a measuring worker. Here
the tool and a Python with the candidate in it are one process tree: they may execute what is installed, write to one
scratch folder, and speak to each other over the loopback device of a network namespace of their own. They share no
memory with the judge and get the task as files. A tool tells about honest mistakes; it is no defence, since a
candidate can tell that it is there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from optimizer.candidate import Candidate
from optimizer.judge.course import Course
from optimizer.judge.device import counters, sanitizer
from optimizer.judge.device.confine import can_change_the_system, tool_walls
from optimizer.judge.device.handout import heaviest, write_handout
from optimizer.judge.device.sanitizer import DidNotRun, Pass
from optimizer.judge.device.standalone import COUNTED, EACH
from optimizer.judge.isolation.supervise import TIMED_OUT, split_walls, supervised_command
from optimizer.judge.isolation.walls import Wall
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subjects
from optimizer.judge.verdict import Outcome, Verdict

LIMIT_S = 120.0  # each run; instrumented kernels are ten to a hundred times slower
_GRACE_S = 15.0  # for the supervisor to end what is left
_HEAD, _TAIL = 1 << 20, 1 << 18  # bytes of output that are kept
_ROOT = Path(__file__).resolve().parents[3]
_PACKAGES = ("extractor", "optimizer")
_LIBRARIES = ("torch", "triton", "safetensors", "pydantic")
_PASSED_ON = ("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "TRITON_INTERPRET")
# Where compute-sanitizer may have something to say: an error that it names is worth more than "output 0 is wrong".
_SANITIZED = (Outcome.CORRECT, Outcome.WRONG, Outcome.CRASHED)
_UNCACHED = {
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"
}  # every tensor is an allocation of its own, of its own size


@dataclass(frozen=True)
class ToolRun:
    """What a run of a tool came to: exit status, output of tool and program together, and the walls it had."""

    status: int
    output: str
    walls: tuple[Wall, ...]


_TOO_MIGHTY = (
    "not run: it needs to write below /proc, where this user could change the system's settings; judge as an ordinary "
    "user, or in a container whose /proc/sys is read-only"
)


@dataclass(frozen=True)
class Sanitized:
    """What compute-sanitizer says: ``finding`` is one sentence, empty if nothing is wrong.

    ``walls`` are for the verdict: the tool itself first, then those it had around it.
    """

    finding: str
    walls: tuple[Wall, ...]


class Toolbox:
    """The tools, for one judge's subjects.

    Args:
        extensions: where a candidate finds its CUDA extensions, as in a worker's plan; None for one without.
        find: a tool's path by its name, or None.
    """

    def __init__(
        self,
        subjects: Subjects,
        settings: JudgeSettings,
        extensions: Callable[[Candidate], Mapping[str, str] | None],
        find: Callable[[str], str | None] | None = None,
    ) -> None:
        self._subjects = subjects
        self._settings = settings
        self._extensions = extensions
        self._find = find or find_tool

    def examine(self, candidate: Candidate, course: Course, verdict: Verdict) -> Verdict:
        """The verdict on a built candidate, after those tools that the settings ask for.

        What compute-sanitizer finds makes a correct candidate wrong and is added to the reason of others.
        """
        reason = verdict.reason
        if self._settings.sanitize and verdict.outcome in _SANITIZED:
            sanitized = self.sanitize(candidate)
            course.walls += sanitized.walls
            if sanitized.finding and verdict.correct:
                return course.verdict(Outcome.WRONG, sanitized.finding)
            if sanitized.finding:
                reason = f"{reason}; {sanitized.finding}"
        if self._settings.ncu and verdict.correct:
            counted = self.count(candidate)
            course.profile = f"{course.profile}\n{counted}" if course.profile else counted
        now = course.verdict(verdict.outcome, reason)
        known = {
            "reason": now.reason,
            "walls": now.walls,
            "missing_walls": now.missing_walls,
            "profile": now.profile,
        }
        return verdict.model_copy(update=known)

    def sanitize(self, candidate: Candidate) -> Sanitized:
        """Call a built candidate once a workload under memcheck, then, if that is clean, under racecheck."""
        tool = self._find(sanitizer.NAME)
        if tool is None:
            return Sanitized("", (_missing(sanitizer.NAME),))
        if can_change_the_system():
            return Sanitized("", (Wall(sanitizer.NAME, False, _TOO_MIGHTY),))
        walls: tuple[Wall, ...] = ()
        done: list[str] = []
        with self._handed_out(candidate) as plan:
            for which in Pass:
                command = sanitizer.sanitizer_command(tool, which, standalone_program(plan, EACH))
                run = self._run(candidate, command, plan.parent, _UNCACHED)
                walls = walls or tuple(_named(wall, sanitizer.NAME) for wall in run.walls)
                try:
                    _require_in_time(run, DidNotRun)
                    found = sanitizer.finding(run.output, run.status)
                except DidNotRun as excuse:
                    said = f"{which.value}: {excuse}" if done else str(excuse)
                    return Sanitized("", (Wall(sanitizer.NAME, False, said), *walls))
                done.append(which.value)
                if found:
                    return Sanitized(found, (Wall(sanitizer.NAME, True, f"ran {', '.join(done)}"), *walls))
        return Sanitized("", (Wall(sanitizer.NAME, True, f"ran {', '.join(done)}"), *walls))

    def count(self, candidate: Candidate) -> str:
        """What ncu counts of one forward of the heaviest workload, as text; or one line on why it does not."""
        tool = self._find(counters.NAME)
        if tool is None:
            return f"{counters.NAME}: {_missing(counters.NAME).why}"
        if can_change_the_system():
            return f"{counters.NAME}: {_TOO_MIGHTY}"
        with self._handed_out(candidate) as plan:
            command = counters.ncu_command(tool, standalone_program(plan, COUNTED))
            run = self._run(candidate, command, plan.parent, {}, privileged=True)
        try:
            _require_in_time(run, counters.DidNotCount)
            launches = counters.read_counters(run.output, run.status)
        except counters.DidNotCount as excuse:
            return f"{counters.NAME}: no counters: {excuse}"
        text = counters.counters_text(launches, heaviest(self._subjects.subjects))
        absent = [f"{wall.name}: {wall.why}" for wall in run.walls if not wall.on]
        return f"{text}\n  without walls: {'; '.join(absent)}" if absent else text

    @contextlib.contextmanager
    def _handed_out(self, candidate: Candidate) -> Iterator[Path]:
        """A scratch folder with the candidate's task in it, gone afterwards; the path of the plan."""
        with tempfile.TemporaryDirectory(prefix="kernelgraft-tool-") as scratch:
            extensions = self._extensions(candidate)
            yield write_handout(Path(scratch), self._subjects, self._settings, candidate, extensions)

    def _run(
        self,
        candidate: Candidate,
        command: list[str],
        folder: Path,
        environment: dict[str, str],
        *,
        privileged: bool = False,
    ) -> ToolRun:
        extensions = self._extensions(candidate)
        readable = [installation(command[0]), *library_folders()]
        readable += [Path(extensions["folder"])] if extensions else []
        walls = tool_walls(LIMIT_S, folder, readable, counters=privileged)
        return run_supervised(supervised_command(walls, LIMIT_S, command), folder, environment)


def find_tool(name: str) -> str | None:
    """Absolute path of one of the CUDA toolkit's programs, or None."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for path in (shutil.which(name), *(f"{home}/bin/{name}" for home in homes if home)):
        if path and os.access(path, os.X_OK):
            return os.path.abspath(path)
    return None


def installation(tool: str) -> Path:
    """The folder a tool is installed in: what is in its ``bin`` is often a script that starts another file there."""
    folder = Path(os.path.realpath(tool)).parent
    return folder.parent if folder.name == "bin" else folder


def library_folders() -> list[Path]:
    """Where this process has its libraries from: an isolated Python looks in fewer places."""
    specs = (importlib.util.find_spec(name) for name in _LIBRARIES)
    return sorted({Path(spec.origin).parents[1] for spec in specs if spec is not None and spec.origin})


def standalone_program(plan: Path, manner: str) -> list[str]:
    """Command line of the standalone runner. Our packages are looked for in a folder that holds nothing else."""
    packages = plan.parent / "packages"
    packages.mkdir(exist_ok=True)
    for package in _PACKAGES:
        if not (packages / package).is_symlink():
            (packages / package).symlink_to(_ROOT / package)
    libraries = [str(folder) for folder in library_folders()]
    code = (
        f"import sys; sys.path.insert(0, {str(packages)!r}); sys.path += {libraries!r}; "
        "from optimizer.judge.device.standalone import main; main(sys.argv[1:])"
    )
    return [sys.executable, "-I", "-c", code, str(plan), manner]


def run_supervised(command: list[str], folder: Path, environment: dict[str, str]) -> ToolRun:
    """Run a supervised command to its end in ``folder``, with ``environment`` on top of the little that is needed."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    basic = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LC_ALL": "C",
    }
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**passed, **basic, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    reader = _Reader(process.stdout)
    try:
        status = process.wait(LIMIT_S + _GRACE_S)
    except subprocess.TimeoutExpired:
        status = TIMED_OUT
    finally:
        process.terminate()  # the supervisor ends the others, then itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    walls, output = split_walls(reader.text())
    return ToolRun(status, output, walls)


class _Reader:
    """Reads a pipe to its end and keeps the beginning and the end of what comes."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._head, self._tail = bytearray(), bytearray()
        self._thread = threading.Thread(target=self._read, name="tool-output", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """All that is kept, once the pipe is closed at its other end."""
        self._thread.join(_GRACE_S)
        self._pipe.close()
        return (self._head + self._tail).decode("utf-8", errors="replace")

    def _read(self) -> None:
        while chunk := os.read(self._pipe.fileno(), 1 << 16):
            room = max(_HEAD - len(self._head), 0)
            self._head += chunk[:room]
            self._tail += chunk[room:]
            del self._tail[:-_TAIL]


def _require_in_time(run: ToolRun, error: type[Exception]) -> None:
    if run.status == TIMED_OUT:
        raise error(f"killed after {LIMIT_S:g} s")


def _missing(name: str) -> Wall:
    return Wall(name, False, "not found on PATH nor in /usr/local/cuda/bin; it is part of the CUDA toolkit")


def _named(wall: Wall, tool: str) -> Wall:
    return wall._replace(name=f"{wall.name} ({tool})")

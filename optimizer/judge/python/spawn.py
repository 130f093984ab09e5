"""The judge's handle on the zygote and on the workers it forks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optimizer.judge import wire
from optimizer.judge.python.zygote import MAX_MESSAGE
from optimizer.judge.remote import CandidateFault, Handle, Run, SandboxFault
from optimizer.judge.verdict import Outcome

_ROOT = str(Path(__file__).resolve().parents[3])
_READY_LIMIT_S = 90.0  # importing torch on a busy machine with cold disks
_ANSWER_LIMIT_S = 20.0
_STOP_POLL_S = 0.0002
_PASSED_ON = (
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CPATH",
    "TMPDIR",
)
_ALL_SEALS = 1 | 2 | 4 | 8
_ADD_SEALS = 1033
_MAX_NAME, _MAX_NAMES = 80, 16  # characters and count of the worker's claims about weights
_CHANGED = 0xFFFFFFFF  # the seed of changed weights is the plan's last
_OURS = ("OutOfBounds", "DataRace")  # raised by our interpreter about the candidate's kernels


class Zygote:
    """A warm process that forks workers. Starting returns at once; the first :meth:`start` waits until it is ready.

    Use as a context manager. Workers may be started from several threads.

    Args:
        interpret: run Triton kernels in its interpreter (no GPU).
        environment: further variables for the process.
    """

    def __init__(self, *, interpret: bool, environment: dict[str, str] | None = None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._lock = threading.Lock()
        self._ready = False
        code = (
            f"import sys; sys.path.insert(0, {_ROOT!r}); "
            "from optimizer.judge.python.zygote import main; main(sys.argv[1:])"
        )
        single = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
        variables = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        variables |= {name: "1" for name in single} | {"LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", code, str(theirs.fileno()), str(int(interpret))],
                env=variables | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
            )

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the zygote."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def start(self, plan: dict[str, Any], files: Sequence[int] = ()) -> PythonWorker:
        """Fork a worker for a plan (see :mod:`.plan`). ``files`` are the judge's memory files, if it has such.

        Raises:
            SandboxFault: it does not come up.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sealed = _sealed(json.dumps(plan).encode())
        try:
            with theirs:
                answer = self._ask({"do": "start"}, [theirs.fileno(), sealed, *files])
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(sealed)
        return PythonWorker(_Forked(self, int(answer["pid"])), ours, plan["sizes"])

    def ending(self, pid: int) -> tuple[bool, int]:
        """(killed, signal or exit status) of a worker; (False, 0) if it lives."""
        answer = self._ask({"do": "ending", "pid": pid})
        return (bool(answer["killed"]), int(answer["status"])) if answer["ended"] else (False, 0)

    def reap(self, pid: int) -> None:
        """Wait for a killed worker to end."""
        with contextlib.suppress(SandboxFault):  # a zygote that is gone has left no child of its own
            self._ask({"do": "reap", "pid": pid})

    def close(self) -> None:
        """End the zygote and all its workers, which die with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._control.close()

    def _ask(self, request: dict[str, Any], files: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock:
            try:
                if not self._ready:
                    self._control.settimeout(_READY_LIMIT_S)
                    self._heard()
                    self._ready = True
                self._control.settimeout(_ANSWER_LIMIT_S)
                socket.send_fds(self._control, [json.dumps(request).encode()], list(files))
                return self._heard()
            except OSError as error:
                raise SandboxFault(f"the zygote does not answer: {error} {self._words()}".strip()) from error

    def _heard(self) -> dict[str, Any]:
        message = self._control.recv(MAX_MESSAGE)
        if not message:
            raise SandboxFault(f"the zygote ended {self._words()}".strip())
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _words(self) -> str:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if self._process.stderr is None or self._process.stderr.closed:
            return ""
        return self._process.stderr.read(8000).decode("utf-8", errors="replace").strip().rpartition("\n")[2]


class WarmPool:
    """Zygotes that several judges share, one of each kind, started when first asked for and replaced once dead.

    Use as a context manager.
    """

    def __init__(self) -> None:
        self._zygotes: dict[bool, Zygote] = {}

    def __enter__(self) -> WarmPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def zygote(self, *, interpret: bool) -> Zygote:
        """A living zygote. Returns at once; its first :meth:`Zygote.start` waits for it."""
        known = self._zygotes.get(interpret)
        if known is None or not known.alive:
            if known is not None:
                known.close()
            self._zygotes[interpret] = known = Zygote(interpret=interpret)
        return known

    def close(self) -> None:
        """End all zygotes and their workers."""
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()


class _Forked:
    """A worker process whose parent is the zygote."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote = zygote
        self.pid = pid
        self._reaped = False

    def ending(self) -> tuple[bool, int]:
        return self._zygote.ending(self.pid)

    def wait_stopped(self) -> None:
        """Only a parent may wait for a stop; others must look."""
        while not all(state in "TtZX" for state in self._states()):
            time.sleep(_STOP_POLL_S)

    def kill(self) -> None:
        if self._reaped:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)  # a child that was killed before its session began
        self._zygote.reap(self.pid)
        self._reaped = True

    def last_words(self) -> str:
        return ""

    def _states(self) -> list[str]:
        states = []
        for task in _listed(f"/proc/{self.pid}/task"):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{self.pid}/task/{task}/stat").read_text(encoding="utf-8")
                states.append(text.rpartition(")")[2].split()[0])
        return states


class PythonWorker(Handle):
    """A started, confined worker that has not loaded the candidate yet; what :class:`Worker` is for native code.

    ``launches`` maps each region to the fewest custom launches of a call in its last run, ``records`` are the distinct
    launches so far, ``state`` is what of the numeric state was found changed, ``tuned`` says whether a kernel has
    several autotune configs, ``untried`` how many of those had no turn yet, and ``unmatched`` names weights that no
    parameter of the model matches. All are the worker's claims.
    """

    launches: dict[int, int]
    records: list[dict[str, Any]]
    state: tuple[str, ...]
    tuned: bool
    untried: int
    unmatched: tuple[str, ...]

    def __init__(self, process: _Forked, channel: socket.socket, sizes: dict[str, int]) -> None:
        super().__init__(process, channel, sizes)
        self.launches = {}
        self.records = []
        self.state = ()
        self.tuned = False
        self.untried = 0
        self.unmatched = ()
        self._helpers = max(super().threads() - 1, 0)  # a device driver's, there before the candidate

    def threads(self) -> int:
        """Threads the worker has now, those it came with beside its own not counted."""
        return super().threads() - self._helpers

    def load(self, limit_s: float) -> None:
        """Execute the candidate's source. Raises CandidateFault."""
        self.told(self.command(wire.LOAD, limit_s=limit_s, doing="being loaded"), "being loaded")

    def pack(self, copy: int, limit_s: float, *, changed: bool = False) -> None:
        """Construct the model on one weight copy anew, under the copy's seed, or the last one for changed weights.

        Raises:
            CandidateFault: the constructor or ``prepare`` fails.
        """
        doing = "constructing ModelNew"
        run = self.command(wire.PACK, copy, _CHANGED if changed else copy, limit_s=limit_s, doing=doing)
        unmatched = self.told(run, doing).get("unmatched")
        names = unmatched if isinstance(unmatched, list) else []
        self.unmatched = tuple(" ".join(str(name).split())[:_MAX_NAME] for name in names[:_MAX_NAMES])

    def run(self, region: int, first: int, count: int, limit_s: float, doing: str) -> Run:
        """Call the candidate on slots of a region, then have the results copied to the outputs.

        The worker is stopped when this returns; times are those of the calls. Raises CandidateFault.
        """
        start = time.monotonic()
        run = self.command(wire.RUN, region, first, count, limit_s=limit_s, doing=doing)
        answer = self.told(run, doing)
        self.launches[region] = answer["launches"] if isinstance(answer.get("launches"), int) else 0
        self.tuned = answer.get("tuned") is True
        self.untried = answer["untried"] if isinstance(answer.get("untried"), int) else 0
        records = answer.get("records")
        if isinstance(records, list):
            self.records += [record for record in records if isinstance(record, dict)]
        left = limit_s - (time.monotonic() - start)
        self.publish(region, first, count, left, doing)
        return run

    def publish(self, region: int, first: int, count: int, limit_s: float, doing: str) -> None:
        """Have the kept results of slots checked and copied to the outputs. Raises CandidateFault."""
        self.told(self.command(wire.PUBLISH, region, first, count, limit_s=limit_s, doing=doing), doing)

    def knock_out(self, on: bool, limit_s: float) -> None:
        """Suppress custom launches from now on, or let them through again. Raises CandidateFault."""
        self.told(self.command(wire.KNOCK_OUT, int(on), limit_s=limit_s, doing="idle"), "idle")

    def told(self, run: Run, doing: str) -> dict[str, Any]:
        """What the worker says besides "done". Raises CandidateFault if it is that the candidate failed."""
        try:
            answer = json.loads(run.text)
            if not isinstance(answer, dict):
                raise ValueError("no object")
            if "state" in answer:
                self.state = tuple(" ".join(str(change).split())[:120] for change in answer["state"])[:8]
            error = " ".join(str(answer.get("error", "")).split())
            line = int(answer.get("line", 0))
        except (ValueError, TypeError, OverflowError, RecursionError) as problem:
            raise CandidateFault(
                Outcome.CRASHED, f"the candidate's process spoke out of turn while {doing}"
            ) from problem
        if run.status == wire.NOT_WHAT_IT_SAYS:
            raise CandidateFault(Outcome.WRONG, f"{error} (while {doing})")
        if run.status == wire.RAISED:
            where = f" at line {line} of the candidate" if line else ""
            kind, _, message = error.partition(": ")
            if kind in _OURS:
                raise CandidateFault(Outcome.WRONG, f"{message}{where} (while {doing})")
            raise CandidateFault(Outcome.CRASHED, f"it raised {error}{where} while {doing}")
        return answer


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _sealed(content: bytes) -> int:
    """A memory file that nobody can change any more."""
    file = os.memfd_create("kernelgraft-plan", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(file, content)
    fcntl.fcntl(file, _ADD_SEALS, _ALL_SEALS)
    return file

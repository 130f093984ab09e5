"""The judge's handle on a worker process: start it, command it, time it from outside, end it.

Nothing the worker says is believed except that it is done: times are the kernel's accounting of its process, read here;
results are read from the shared outputs here, while the worker is stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from optimizer.judge import wire
from optimizer.judge.isolation.launch import isolated_python
from optimizer.judge.isolation.walls import Wall
from optimizer.judge.verdict import Outcome

_HELLO_LIMIT_S = 20.0  # our own start-up code, on a machine that may be busy


class CandidateFault(Exception):
    """The candidate ended its own evaluation: how, and one sentence on why."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


class SandboxFault(Exception):
    """The judge's own machinery failed; never the candidate's fault."""


class Run(NamedTuple):
    """One command's outcome: the candidate's status, and nanoseconds as seen from outside."""

    status: int
    control: int
    cpu_ns: int
    wall_ns: int
    idle_ns: int  # of the wall time, neither running nor queueing for a core; 0 where the kernel does not say
    text: str


class Callee(Protocol):
    """A worker as the checks see it, whatever language it serves."""

    control: int

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    def pack(self, copy: int, limit_s: float, *, changed: bool = False) -> None:
        """Have the candidate take over one weight copy, whose values may be others by now. Raises CandidateFault."""
        ...

    def run(self, region: int, first: int, count: int, limit_s: float, doing: str) -> Run:
        """Call the candidate on slots of a region; stopped when this returns. Raises CandidateFault."""
        ...

    def threads(self) -> int:
        """Threads it has now."""
        ...

    def pin(self, core: int) -> None:
        """Keep it on one core; ignored where not permitted."""
        ...


class Process(Protocol):
    """A worker's process as far as its parent is needed: this process, or the one it was forked from."""

    pid: int

    def ending(self) -> tuple[bool, int]:
        """(killed by a signal, signal or exit status) of a process that closed its channel; (False, 0) if it lives.

        It stays unreaped, so that its process group keeps its name until :meth:`kill`.
        """
        ...

    def wait_stopped(self) -> None:
        """Wait until all its threads are stopped, or it has ended."""
        ...

    def kill(self) -> None:
        """Kill its whole process group while the leader is at most a zombie, then reap the leader."""
        ...

    def last_words(self) -> str:
        """Kill it; the last line it wrote to its standard error, if that was kept."""
        ...


class Handle:
    """Commands one worker over its channel, timed from outside. Use as a context manager.

    Args:
        process: the started worker.
        channel: our end of its channel; closed with the handle.
        sizes: bytes of its inputs, weights and outputs.

    Raises:
        SandboxFault: it does not come up.
    """

    def __init__(self, process: Process, channel: socket.socket, sizes: Mapping[str, int]) -> None:
        self._process = process
        self._channel = channel
        self._sizes = sizes
        self._clock = (~process.pid << 3) | 2
        self._stopped = False
        try:
            greeting = self._receive(_HELLO_LIMIT_S, "start-up")
        except CandidateFault as fault:
            tail = process.last_words()
            self.close()
            raise SandboxFault(f"the worker did not start: {fault.reason} {tail}".strip()) from fault
        except BaseException:
            self.close()
            raise
        if not isinstance(greeting, wire.Hello):
            self.close()
            raise SandboxFault(f"the worker did not greet: {greeting.text}")
        self.walls = tuple(Wall(*wall) for wall in greeting.walls)
        self.control = greeting.control
        self._bases = greeting.bases

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id, also of its process group and session."""
        return self._process.pid

    def command(
        self, action: int, first: int = 0, second: int = 0, third: int = 0, *, limit_s: float, doing: str
    ) -> Run:
        """One command and its answer, timed from outside. Raises CandidateFault."""
        waited = _queued_ns(self.pid)
        cpu, wall = self._cpu_ns(), time.perf_counter_ns()  # while it is stopped still
        self._resume()
        self._send(wire.COMMAND.pack(action, first, second, third), doing)
        answer = self._receive(limit_s, doing)
        wall = time.perf_counter_ns() - wall
        self._stop()
        cpu = self._cpu_ns() - cpu
        later = _queued_ns(self.pid)
        if not isinstance(answer, wire.Done):
            raise CandidateFault(Outcome.CRASHED, f"the candidate's process spoke out of turn while {doing}")
        idle = max(0, wall - cpu - (later - waited)) if later >= waited >= 0 else 0
        return Run(answer.status, answer.control, cpu, wall, idle, answer.text)

    def threads(self) -> int:
        """Threads the worker has now."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/task"))
        except OSError:
            return 0

    def pin(self, core: int) -> None:
        """Keep the worker on one core; ignored where not permitted."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self.pid, {core})

    def close(self) -> None:
        """Kill the worker's whole process group and reap it."""
        self._process.kill()
        self._channel.close()

    def _send(self, message: bytes, doing: str) -> None:
        try:
            self._channel.send(message)
        except OSError:
            self._died(doing, None)

    def _receive(self, limit_s: float, doing: str) -> wire.Done | wire.Hello:
        """The next message. Raises CandidateFault if it does not come, or the process dies."""
        self._channel.settimeout(max(limit_s, 0.001))
        try:
            message = self._channel.recv(wire.MAX_MESSAGE)
            answer = wire.parse(message) if message else None
        except TimeoutError as error:
            raise CandidateFault(
                Outcome.HUNG, f"killed after {limit_s:.3g} s while {doing}: it hangs or is far too slow"
            ) from error
        except (wire.Breach, ConnectionError) as error:
            raise CandidateFault(
                Outcome.CRASHED, f"the candidate's process spoke out of turn while {doing}: {error}"
            ) from error
        if answer is None or isinstance(answer, wire.Fault):
            self._died(doing, answer)
        assert not isinstance(answer, wire.Fault)
        assert answer is not None
        return answer

    def _died(self, doing: str, fault: wire.Fault | None) -> None:
        if fault is not None:
            raise CandidateFault(*self._explain_fault(fault, doing))
        killed, status = self._process.ending()
        if killed:
            name = _signal_name(status)
            hint = " (out of CPU time)" if name == "SIGXCPU" else ""
            raise CandidateFault(Outcome.CRASHED, f"the candidate died of {name}{hint} while {doing}")
        raise CandidateFault(
            Outcome.CRASHED,
            f"the candidate's process ended with exit status {status} while {doing}; a kernel must return",
        )

    def _explain_fault(self, fault: wire.Fault, doing: str) -> tuple[Outcome, str]:
        name = _signal_name(fault.signal)
        at = f" {_short(fault.text)}" if fault.text else ""
        if fault.signal in (signal.SIGSEGV, signal.SIGBUS):
            for base, kind in zip(self._bases, ("inputs", "weights", "outputs"), strict=True):
                inside = base <= fault.address < base + self._sizes[kind]
                if inside and kind != "outputs" and fault.write:
                    return Outcome.WRONG, f"it writes to its {kind}{at} while {doing}; they are read-only"
            access = "write to" if fault.write else "read of"
            where = (
                "a null pointer"
                if fault.address < 4096
                else f"address {fault.address:#x}, which is not its own"
            )
            return Outcome.CRASHED, f"it died of {name}{at} on a {access} {where} while {doing}"
        hints: dict[int, str] = {
            signal.SIGILL: ": an instruction this processor lacks, or undefined behaviour",
            signal.SIGFPE: ": integer division by zero",
            signal.SIGABRT: ": abort, an uncaught exception or corrupted memory (threads and files are not available)",
        }
        return (
            Outcome.CRASHED,
            f"it died of {name}{at} while {doing}{hints.get(fault.signal, '')}",
        )

    def _stop(self) -> None:
        """Stop every thread of the worker and wait until it is stopped."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGSTOP)
            self._process.wait_stopped()
        self._stopped = True

    def _resume(self) -> None:
        if self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
            self._stopped = False

    def _cpu_ns(self) -> int:
        """CPU time of all the worker's threads, from the kernel's books: the worker cannot change it."""
        try:
            return time.clock_gettime_ns(self._clock)
        except OSError as error:
            raise SandboxFault(f"the worker's CPU clock cannot be read: {error}") from error


class Worker(Handle):
    """A started, confined worker for native code that has not loaded the candidate yet.

    ``files`` are the descriptors of inputs, weights and outputs; ``plan`` is the worker's plan.

    Raises:
        SandboxFault: it does not come up.
    """

    def __init__(self, plan: dict[str, Any], files: Sequence[int]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = _Child(plan, theirs.fileno(), files)
        try:
            process.send_plan(plan)
        except BaseException:
            process.kill()
            ours.close()
            raise
        super().__init__(process, ours, plan["sizes"])

    def load(self, limit_s: float) -> None:
        """Load the candidate's library. Raises CandidateFault."""
        run = self.command(wire.LOAD, limit_s=limit_s, doing="being loaded")
        if run.status:
            raise CandidateFault(Outcome.BUILD_FAILED, f"the library does not serve: {run.text}")

    def pack(self, copy: int, limit_s: float, *, changed: bool = False) -> None:
        """Run the packing step on one weight copy, whose values may be others by now. Raises CandidateFault."""
        self.command(wire.PACK, copy, limit_s=limit_s, doing="packing weights (kg_pack)")

    def run(self, region: int, first: int, count: int, limit_s: float, doing: str) -> Run:
        """Call the candidate on slots of a region. The worker is stopped when this returns. Raises CandidateFault."""
        return self.command(wire.RUN, region, first, count, limit_s=limit_s, doing=doing)

    def empty_runs(self, count: int, limit_s: float) -> list[Run]:
        """Batches of no calls, for what commanding the worker costs; honest only before a candidate is loaded."""
        self.run(1, 0, 0, limit_s, "being prepared")
        return [self.run(1, 0, 0, limit_s, "being prepared") for _ in range(count)]


class _Child:
    """A worker process that is our own child."""

    def __init__(self, plan: dict[str, Any], channel: int, files: Sequence[int]) -> None:
        descriptors = [channel, *files]
        command = isolated_python("optimizer.judge.worker", *(str(number) for number in descriptors))
        environment = {
            "OMP_NUM_THREADS": str(plan["threads"]),
            "OMP_WAIT_POLICY": "passive",
            "LC_ALL": "C",
        }
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=descriptors,
            start_new_session=True,
            cwd="/",
        )
        self.pid = self._process.pid

    def send_plan(self, plan: dict[str, Any]) -> None:
        """Raises SandboxFault if the worker is gone already."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(plan).encode())
            self._process.stdin.close()
        except BrokenPipeError as error:
            raise SandboxFault(f"the worker ended at once {self.last_words()}".strip()) from error

    def ending(self) -> tuple[bool, int]:
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                return ended.si_code != os.CLD_EXITED, ended.si_status
            time.sleep(0.001)
        return False, 0

    def wait_stopped(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        for stream in (self._process.stdin, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def last_words(self) -> str:
        if self._process.stderr is None or self._process.stderr.closed:
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        text = self._process.stderr.read(4000).decode("utf-8", errors="replace")
        return text.strip().rpartition("\n")[2]


def _queued_ns(worker: int) -> int:
    """Time the worker, and this thread, which waits for it, were runnable while others had the core; -1 if unknown."""
    total = 0
    for path in (f"/proc/{worker}/schedstat", "/proc/thread-self/schedstat"):
        try:
            with open(path, encoding="ascii") as file:
                total += int(file.read().split()[1])
        except (OSError, ValueError, IndexError):
            return -1
    return total


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _short(text: str) -> str:
    """A worker's words, fit for a sentence."""
    return " ".join(text.split())[:80]

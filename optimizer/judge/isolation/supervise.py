"""Run a program that starts others, and leave none of them behind.

The supervisor stays outside the walls and adopts every orphan of the program, so that none can hide by losing its
parent or by leaving the process group. Its first lines of output say which walls stand, before the program runs.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

from optimizer.judge.isolation import libc
from optimizer.judge.isolation.launch import isolated_python
from optimizer.judge.isolation.walls import Wall, WallPlan, raise_walls
from optimizer.judge.leftovers import descendants

TIMED_OUT = 124  # exit status
_CANNOT_RUN = 127
_MARK = "kernelgraft-wall"
_PATIENCE_S = 5.0
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}


def supervised_command(plan: WallPlan, limit_s: float, command: list[str]) -> list[str]:
    """``command`` (its first part an absolute path) behind the walls of ``plan``, killed with all it started when it
    ends, after ``limit_s`` seconds, or when this process ends."""
    return isolated_python("optimizer.judge.isolation.supervise", f"{limit_s:.3f}", plan.to_json(), *command)


def split_walls(output: str) -> tuple[tuple[Wall, ...], str]:
    """The walls that a supervised program's output begins with, and the rest of it.

    >>> split_walls("kernelgraft-wall\\tseccomp\\ton\\tfewer calls\\nhello\\n")
    ((Wall(name='seccomp', on=True, why='fewer calls'),), 'hello\\n')
    """
    walls = []
    while output.startswith(f"{_MARK}\t"):
        line, _, output = output.partition("\n")
        _mark, name, state, why = line.split("\t", 3)
        walls.append(Wall(name, state == "on", why))
    return tuple(walls), output


def main(arguments: list[str]) -> None:
    """``LIMIT_S PLAN PROGRAM ...``. Exits with the program's status, or ``TIMED_OUT``."""
    limit, plan, *command = arguments
    deadline = time.monotonic() + float(limit)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    libc.prctl(libc.PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.fork()
    if child == 0:
        _become(WallPlan.from_json(plan), command)
    try:
        status = _wait(child, deadline)
    finally:
        _end_all()
    sys.exit(status)


def _become(plan: WallPlan, command: list[str]) -> None:
    """In the forked process: raise the walls, report them, be the program."""
    try:
        for wall in raise_walls(plan):
            why = wall.why.replace("\n", " ")
            os.write(1, f"{_MARK}\t{wall.name}\t{'on' if wall.on else 'off'}\t{why}\n".encode())
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(_CANNOT_RUN)


def _wait(child: int, deadline: float) -> int:
    """The child's exit status (128 + N for signal N), once it has one."""
    while (left := deadline - time.monotonic()) > 0:
        got = signal.sigtimedwait(_SIGNALS, left)
        if got is None or got.si_signo == signal.SIGTERM:
            break
        for pid, status in _reaped():
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
    return TIMED_OUT


def _reaped() -> list[tuple[int, int]]:
    """(process, wait status) of children that have ended."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found


def _end_all() -> None:
    """Kill every descendant, those too that appear meanwhile."""
    end = time.monotonic() + _PATIENCE_S
    while (left := descendants()) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reaped()
        time.sleep(0.01)

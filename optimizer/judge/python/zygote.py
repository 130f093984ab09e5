"""The warm process: it imports torch and Triton once and forks one worker for each candidate. Trusted.

It must stay single-threaded and must never run a parallel region: a forked child could not run one of its own then.
It speaks JSON datagrams over a SEQPACKET socket: ``{"do": "start"}`` with the descriptors of a worker's channel, its
plan and its memory files attached -> ``{"pid": N}``; ``{"do": "ending", "pid": N}`` -> ``{"ended": true, "killed":
false, "status": 0}``; ``{"do": "reap", "pid": N}`` -> ``{}``. Its first datagram says that it is ready.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
from typing import Any

MAX_MESSAGE = 1 << 16
MAX_FILES = 8
_ENDING_WAIT_S = 1.0
_ARCHITECTURES = (75, 80, 86, 87, 89, 90, 100, 103, 120)  # that Triton knows


def main(arguments: list[str]) -> None:
    """``CONTROL INTERPRET``: descriptor of the control socket; 1 to run Triton kernels in its interpreter."""
    control = socket.socket(fileno=int(arguments[0]))
    interpret = arguments[1] == "1"
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, Triton's own too
    import torch  # noqa: F401
    import triton.language  # noqa: F401

    from optimizer.judge.python import host  # noqa: F401  what workers need, imported once
    from optimizer.languages import triton_host  # noqa: F401

    if interpret:
        from optimizer.judge.python import interpreter

        interpreter.install()
    else:
        _import_extension_tools()
        _ask_the_compiler()
    _import_late_ones()
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"ready": True, "threads": len(os.listdir("/proc/self/task"))}).encode())
    while True:
        message, files, _flags, _address = socket.recv_fds(control, MAX_MESSAGE, MAX_FILES)
        if not message:
            return
        control.send(json.dumps(_answer(json.loads(message), files, control)).encode())
        for file in files:
            os.close(file)


def _import_late_ones() -> None:
    """Do once what torch imports at first use: it takes time, and in a worker files are out of reach by then."""
    import torch

    from extractor.program import seeded
    from optimizer.judge.numeric_state import written_down

    with written_down(1), seeded(0):
        torch.zeros(64).half().bfloat16()  # conversions look at the processor, in files


def _import_extension_tools() -> None:
    """Look for the CUDA toolkit now, since workers may not, without touching the device: no child could use it then."""
    import torch

    asks, torch.cuda.is_available = torch.cuda.is_available, lambda: True
    try:
        import torch.utils.cpp_extension
    finally:
        torch.cuda.is_available = asks


def _ask_the_compiler() -> None:
    """Learn what names compiled kernels in Triton's cache: workers may start no program to ask for it."""
    from triton.backends.nvidia.compiler import get_ptxas_version
    from triton.runtime import build, cache

    for architecture in _ARCHITECTURES:
        get_ptxas_version(architecture)
    cache.triton_key()
    build.platform_key()


def _answer(request: dict[str, Any], files: list[int], control: socket.socket) -> dict[str, Any]:
    if request["do"] == "start":
        pid = os.fork()
        if pid == 0:
            _work(files, control)
        return {"pid": pid}
    if request["do"] == "ending":
        return _ending(request["pid"])
    os.waitpid(request["pid"], 0)
    return {}


def _ending(pid: int) -> dict[str, Any]:
    """How a child ended, left unreaped; waits a moment for one that is just ending."""
    deadline = time.monotonic() + _ENDING_WAIT_S
    while time.monotonic() < deadline:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is not None:
            return {"ended": True, "killed": ended.si_code != os.CLD_EXITED, "status": ended.si_status}
        time.sleep(0.001)
    return {"ended": False}


def _work(files: list[int], control: socket.socket) -> None:
    """The child: become a session of its own, forget the zygote, and host a candidate until the channel closes."""
    from optimizer.judge import wire
    from optimizer.judge.python import host
    from optimizer.languages import triton_host

    channel, plan_file, *memory = files
    status = 1
    try:
        os.setsid()
        control.close()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # What a candidate prints is of no interest, and a full pipe that nobody reads would stop it.
        null = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        plan = json.loads(_read(plan_file))
        os.close(plan_file)
        if plan.get("host") == "compiler":
            triton_host.serve(channel, plan)
        else:
            host.serve(channel, plan, memory)
        status = 0
    except Exception as error:  # noqa: BLE001  a child must not return into the zygote's loop, whatever happens
        os.write(channel, wire.done(1, 0, f"{type(error).__name__}: {error}"[:500]))
    finally:
        os._exit(status)


def _read(file: int) -> bytes:
    size = os.fstat(file).st_size
    return os.pread(file, size, 0)


if __name__ == "__main__":
    main(sys.argv[1:])

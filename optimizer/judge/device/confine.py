"""How high the walls of a worker on a GPU are: what it may read and write, and how much it may take."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from optimizer.judge.isolation.walls import WallPlan
from optimizer.judge.python.paths import python_read_paths
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subjects

_SPARE_S = 30  # CPU time: importing, compiling launchers and driver threads are not the candidate's doing
_CONTEXT_BYTES = 2 << 30  # what a context, its code and libraries' workspaces take of the device
_CAP_BYTES = 4 << 30  # what a candidate may take besides outputs and packed weights


def read_paths() -> tuple[str, ...]:
    """What any Python worker may read, the compilers' headers, and what the driver asks of the system."""
    headers = sysconfig.get_paths()["include"]
    return (*python_read_paths(), headers, "/etc", "/proc", "/sys", "/dev", "/sbin")


def device_nodes() -> tuple[str, ...]:
    """The device files the driver opens, and its own entries below /proc; nothing else of /dev is writable."""
    nodes = [str(path) for path in Path("/dev").glob("nvidia*")]
    return (*nodes, "/dev/null", "/dev/zero", "/proc/self", "/proc/driver")


def measuring_walls(settings: JudgeSettings, folders: Sequence[Path]) -> WallPlan:
    """For a worker that is checked and timed: compiled code is there to read, no program can be started."""
    return WallPlan(
        read=(*read_paths(), *(str(folder) for folder in folders)),
        write=device_nodes(),
        syscalls="device",
        threads=settings.threads,
        cpu_seconds=int(settings.run_limit_s) + _SPARE_S,
        file_bytes=1 << 20,
    )


def building_walls(limit_s: float, folder: Path, libraries: Sequence[Path]) -> WallPlan:
    """For a worker that only compiles: it may start compilers and write below ``folder``."""
    return WallPlan(
        read=(*read_paths(), *(str(library) for library in libraries)),
        write=(*device_nodes(), str(folder)),
        syscalls="builder",
        threads=1,
        cpu_seconds=int(2 * limit_s) + _SPARE_S,
        file_bytes=1 << 30,
    )


def tool_walls(limit_s: float, folder: Path, installed: Sequence[Path], *, counters: bool) -> WallPlan:
    """For a tool and the candidate under it: what is ``installed`` may be executed, ``folder`` written.

    ``counters`` are those of the device's performance, which some drivers keep for privileged users.
    """
    # The driver writes to entries of its own process below /proc, and of which process is not known beforehand.
    nsight = [path for path in ("/opt/nvidia", "/usr/local/cuda") if Path(path).exists()]
    return WallPlan(
        read=(*read_paths(), *nsight, *(str(path) for path in installed)),
        write=(*device_nodes(), "/proc", str(folder)),
        syscalls="tool",
        cpu_seconds=int(2 * limit_s) + _SPARE_S,
        file_bytes=1 << 30,
        loopback=True,
        counters=counters,
    )


def can_change_the_system() -> bool:
    """Whether this user may write the kernel's settings below /proc, which a tool's walls have to leave open."""
    return os.access("/proc/sys/kernel/core_pattern", os.W_OK)


def memory_cap(subjects: Subjects) -> int:
    """Bytes torch's allocator may take in a worker: all kept outputs twice, packed weights, and room to work."""
    return _CAP_BYTES + 3 * subjects.outputs.size + 2 * subjects.weights.size + subjects.inputs.size


def memory_limit(subjects: Subjects) -> int:
    """Bytes of device memory at which a worker is killed from outside; the judge's own memory may count in it."""
    shared = subjects.inputs.size + subjects.weights.size + subjects.outputs.size
    return memory_cap(subjects) + shared + _CONTEXT_BYTES

"""What an activity leaves behind: processes, open descriptors, shared memory, temporary files.

Temporary files are told apart from other programs' by a folder of their own, processes by becoming the parent of all
orphans meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# What cheats of the corpus write where they should not be able to, anywhere in these folders.
FOOTPRINT = "kernelgraft-was-here"
_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
_TORCH_CACHE = "torchinductor_"  # torch makes it for its own compiler, once a machine
_SUBREAPER, _GET_SUBREAPER = 36, 37
_PATIENCE_S = 3.0  # a killed process takes a moment to go


@dataclass
class Leftovers:
    """Filled in when the watch ends: one phrase each. Empty is what should be."""

    found: tuple[str, ...] = field(default=())


@contextlib.contextmanager
def watched() -> Iterator[Leftovers]:
    """Watches what happens inside. Temporary files go to a folder of their own, which is removed afterwards."""
    result = Leftovers()
    with _adopting(), tempfile.TemporaryDirectory(prefix="kernelgraft-watched-") as folder:
        with _temporary_files_in(folder):
            processes, descriptors, shared = descendants(), _descriptors(), _shared()
            yield result
        result.found = (
            *_new_processes(processes),
            *(f"open descriptor: {name}" for name in sorted(_descriptors() - descriptors)),
            *(f"shared memory: /dev/shm/{name}" for name in sorted(_shared() - shared)),
            *(f"temporary file: {name}" for name in _names(Path(folder))),
            *(f"file: {path}" for path in _footprints()),
        )


def descendants(pid: int | None = None) -> dict[int, str]:
    """Living descendants of a process (this one by default): id -> command, zombies included."""
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                text = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8", errors="replace")
                name, _, rest = text.partition("(")[2].rpartition(")")
                children.setdefault(int(rest.split()[1]), []).append((int(entry), name))
    found: dict[int, str] = {}
    waiting = [os.getpid() if pid is None else pid]
    while waiting:
        for child, name in children.get(waiting.pop(), []):
            found[child] = name
            waiting.append(child)
    return found


def _new_processes(before: dict[int, str]) -> list[str]:
    end = time.monotonic() + _PATIENCE_S
    while True:
        left = {pid: name for pid, name in descendants().items() if pid not in before}
        if not left or time.monotonic() > end:
            return [f"process {pid} ({name})" for pid, name in sorted(left.items())]
        time.sleep(0.05)


def _descriptors() -> set[str]:
    """What this process holds open, by kind and name; the same name twice is told apart by its number."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that was listing
            target = os.readlink(f"/proc/self/fd/{number}")
            if not target.startswith(
                ("/proc/", "/dev/nvidia")
            ):  # a CUDA context stays as long as this process
                found.add(f"{number} -> {target}")
    return found


def _shared() -> set[str]:
    """Our segments in /dev/shm: other users' come and go as they like."""
    names = set()
    with contextlib.suppress(OSError), os.scandir("/dev/shm") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid() and "kernelgraft" in entry.name:
                    names.add(entry.name)
    return names


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(_TORCH_CACHE))


def _footprints() -> list[Path]:
    return [path for folder in _FOLDERS if (path := Path(folder, FOOTPRINT)).exists()]


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Orphans of our descendants become our children, so that none can hide by losing its parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    was = ctypes.c_int(0)
    libc.prctl(_GET_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_SUBREAPER, was.value, 0, 0, 0)


@contextlib.contextmanager
def _temporary_files_in(folder: str) -> Iterator[None]:
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable

"""Peak memory of a stage: this process and all it started, sampled together.

The kernel's own high-water marks do not add up: each process has its peak at another time, and a child that is being
started briefly counts its parent's pages as its own. So a thread looks at all of them at once, now and then.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

SAMPLE_SECONDS = 1.0
_STATUS = re.compile(r"^(PPid|RssAnon|RssShmem|RssFile|VmSize):\s+(\d+)", re.MULTILINE)


class MemoryWatch:
    """Samples resident memory while its block runs; ``peak_bytes`` is the largest sum seen.

    Private and shared pages of every process are added, file-backed ones (libraries) only of this process.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, resident_bytes(os.getpid()))
            if self._stop.wait(SAMPLE_SECONDS):
                return


def resident_bytes(root: int) -> int:
    """Resident bytes of a process and its descendants, 0 where the system does not tell."""
    table = {pid: facts for pid in _processes() if (facts := _status(pid)) is not None}
    if root not in table:
        return 0
    total = table[root].get("RssFile", 0)
    family = [root]
    while family:
        pid = family.pop()
        total += table[pid].get("RssAnon", 0) + table[pid].get("RssShmem", 0)
        family += [
            child
            for child, facts in table.items()
            if facts.get("PPid") == pid and not _still_the_parent(facts, table[pid])
        ]
    return total * 1024


def _still_the_parent(child: dict[str, int], parent: dict[str, int]) -> bool:
    """A child between vfork and exec runs in its parent's memory: the same pages, not more."""
    return all(child.get(name) == parent.get(name) for name in ("RssAnon", "RssFile", "VmSize"))


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _status(pid: int) -> dict[str, int] | None:
    """Sizes in KiB and the parent's id; None for a process that has just gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return {name: int(value) for name, value in _STATUS.findall(text)}

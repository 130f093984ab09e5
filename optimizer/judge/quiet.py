"""Is the machine quiet enough to time several threads by the wall clock? Measured from outside, by the kernel's books.

Two measures. :func:`probe` runs trusted threads of this process and compares the CPU time they got with the wall
time. :class:`Bystander` watches the threads that are timed: the time they were runnable while others had their core.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping, Sequence

# A probe's worst thread must get this share of a core; its threads spread over the cores before they are measured.
ENOUGH = 0.8
_SETTLE_S, _PROBE_S = 0.004, 0.016
_BLOCK = bytes(256 << 10)  # hashing more than 2 KiB runs without the interpreter's lock
# A thread may queue for this share of a batch. Waking one on an idle core queues it briefly, too: not counted.
MOST_QUEUED = 0.1
_WAKE_NS = 20_000
_NAP_S, _NAPS = 0.001, 40

REMEDY = "judge on a quiet machine, or with --threads 1, whose clock other programs hardly disturb"

Books = Mapping[str, tuple[int, int]]  # by thread: nanoseconds queued, times it was given a core


def probe(threads: int) -> float:
    """The share of a core that the worst of so many spinning threads gets, 0..1."""
    shares: list[float] = []
    gate = threading.Barrier(threads)

    def spin() -> None:
        gate.wait()
        _hash_until(time.perf_counter() + _SETTLE_S)
        wall, cpu = time.perf_counter(), time.thread_time()
        _hash_until(wall + _PROBE_S)
        shares.append((time.thread_time() - cpu) / (time.perf_counter() - wall))

    spinning = [threading.Thread(target=spin) for _ in range(threads)]
    for thread in spinning:
        thread.start()
    for thread in spinning:
        thread.join()
    return min(1.0, *shares)


def queued(process: int) -> Books | None:
    """What every thread of a process queued for a core so far; None where the kernel does not say."""
    books = {}
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/schedstat", encoding="ascii") as file:
                _, waited, turns = file.read().split()
            books[thread] = int(waited), int(turns)
    except (OSError, ValueError):
        return None
    return books


def queued_share(before: Books, after: Books, wall_ns: float) -> float:
    """The longest any thread queued between two looks, as a share of the wall time; waking up is free."""
    longest = 0
    for thread, (waited, turns) in after.items():
        waited_before, turns_before = before.get(thread, (0, 0))
        longest = max(longest, waited - waited_before - _WAKE_NS * (turns - turns_before + 1))
    return longest / max(wall_ns, 1.0)


class Bystander:
    """Watches processes between ``start`` and ``stop``. Where the kernel keeps no books, a probe stands in."""

    def __init__(self, processes: Sequence[int], threads: int) -> None:
        self._processes, self._threads = tuple(processes), threads
        self._before: list[Books | None] = []
        self._wall = 0

    def start(self) -> None:
        self._before = [queued(process) for process in self._processes]
        self._wall = time.perf_counter_ns()

    def stop(self) -> bool:
        """True if they had their cores to themselves all the while."""
        wall = time.perf_counter_ns() - self._wall
        for process, before in zip(self._processes, self._before, strict=True):
            after = queued(process)
            if before is None or after is None:
                return probe(self._threads) >= ENOUGH
            if queued_share(before, after, wall) > MOST_QUEUED:
                return False
        return True


def rest() -> None:
    """Wait until this process's own threads, which spin for a while after parallel work, have gone to sleep."""
    for _ in range(_NAPS):
        cpu = time.process_time()
        time.sleep(_NAP_S)
        if time.process_time() - cpu < _NAP_S / 5:
            return


def _hash_until(end: float) -> None:
    while time.perf_counter() < end:
        hashlib.sha256(_BLOCK)

"""Worker side: everything a worker on a GPU does around the candidate's calls. Made before the candidate is loaded.

Functions of torch that matter here are bound on construction: a candidate that replaces ``torch.cuda.Event`` later
replaces nothing of this. What is measured here is still only a claim; the judge reads its own clock outside.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from optimizer.judge.device import driver

UNWRITTEN = 0xFF
_SLACK = 512  # torch's allocator hands out multiples of this many bytes
_LOOK_BEHIND = 4096
_SMALL_BLOCK, _SMALL_BLOCKS = 1 << 20, 32  # tensors up to 1 MiB come from a pool of their own
_LEAST_POISON = 64 << 20
_CAPTURE_WARMUPS = 2

Call = Callable[[], object]


def use_cache(folder: str) -> None:
    """Have Triton read compiled kernels from ``folder``, and compilers put their files there.

    The driver must be loaded: where it lies is told to Triton, which would start a program to find out.
    """
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = [line.split()[-1] for line in maps if "/libcuda.so" in line]
    if paths:
        os.environ["TRITON_LIBCUDA_PATH"] = os.path.dirname(paths[0])
    os.environ["TRITON_CACHE_DIR"] = folder
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = folder


class NotCapturable(Exception):
    """The calls cannot be put into a CUDA graph: why, in the words of torch."""


class Stage:
    """One worker's device: memory cap, poison, flush, event timing, graph replay, profile.

    Args:
        device: ``cuda`` or ``cuda:N``.
        memory_cap: bytes that torch's allocator may take; 0 means all there is. Memory taken past the allocator
            is seen from outside only.
    """

    def __init__(self, device: str, memory_cap: int) -> None:
        self._device = torch.device("cuda", torch.device(device).index or 0)
        torch.cuda.set_device(self._device)
        torch.empty(1, device=self._device)
        properties = torch.cuda.get_device_properties(self._device)
        if memory_cap:
            share = min(1.0, memory_cap / properties.total_memory)
            torch.cuda.set_per_process_memory_fraction(share, self._device)
        self._flush = torch.empty(2 * properties.L2_cache_size, dtype=torch.uint8, device=self._device)
        self._nudged = torch.empty(1, dtype=torch.uint8, device=self._device)
        self._event = torch.cuda.Event
        self._record_event = torch.cuda.Event.record
        self._elapsed = torch.cuda.Event.elapsed_time
        self._synchronize = torch.cuda.synchronize
        self._graph = torch.cuda.CUDAGraph
        self._capture = torch.cuda.graph
        self._segments = torch.cuda.memory_snapshot
        self._snapshot = torch.cuda.memory._snapshot
        self._record = torch.cuda.memory._record_memory_history
        self._poisoned: list[tuple[int, int]] = []
        self._given: list[tuple[int, int]] | None = []
        self._empty = torch.empty
        self._replays: dict[int, Call] = {}
        self._results: dict[int, list[object]] = {}
        self.events(1)  # torch loads what it needs for them now, not under the candidate

    def synchronize(self) -> None:
        """Wait for everything on the device, on all streams of this process."""
        self._synchronize(self._device)

    def flush(self) -> None:
        """Write twice the L2 cache's size: nothing of earlier calls stays in it."""
        self._flush.fill_(1)

    def nudge(self) -> None:
        """Run one tiny kernel, so that the device turns to this process; its cache stays as it is."""
        self._nudged.fill_(1)
        self.synchronize()

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy ``source`` to ``target`` of the same shape and dtype, by the driver where both are dense.

        torch's copy can be replaced from within (an operator registered anew), and would then do at publication what
        should have been done while it was timed.
        """
        if source.is_contiguous() and target.is_contiguous() and source.device == target.device:
            driver.copy(target.data_ptr(), source.data_ptr(), source.numel() * source.element_size())
        else:
            target.copy_(source)

    def poison(self, size: int) -> None:
        """Fill memory that the next tensors will be given with bytes that are NaN in every float dtype.

        ``size`` is what the next calls will need, in bytes.
        """
        self.synchronize()
        free, _total = torch.cuda.mem_get_info(self._device)
        blocks = [self._byte_block(_SMALL_BLOCK) for _ in range(_SMALL_BLOCKS)]
        blocks.append(self._byte_block(min(max(size, _LEAST_POISON), free // 4)))
        del blocks
        self._poisoned = self._free_spans()
        for address, size in self._poisoned:
            driver.bytes_at(address, size, str(self._device)).fill_(UNWRITTEN)
        self.synchronize()
        self._given = None
        self._record(enabled="all", context=None, stacks="python", clear_history=True)

    def _free_spans(self) -> list[tuple[int, int]]:
        """(address, bytes) of what torch's allocator keeps to hand out again."""
        return [
            (block["address"], block["size"])
            for segment in self._segments()
            if segment["device"] == self._device.index
            for block in segment["blocks"]
            if block["state"] == "inactive"
        ]

    def _byte_block(self, size: int) -> torch.Tensor:
        return self._empty(size, dtype=torch.uint8, device=self._device)

    def overrun(self, output: torch.Tensor) -> bool:
        """True if bytes behind an output's storage are no longer as :meth:`poison` left them.

        Only bytes are looked at that the allocator gave to nobody since: what a tensor that is gone may have
        written is not held against anyone.
        """
        if self._given is None:
            self._given = self._given_out()
        storage = output.untyped_storage()
        if not storage.nbytes() or storage.device != self._device:
            return False
        start, stop = untouched_behind(storage.data_ptr(), storage.nbytes(), self._poisoned, self._given)
        if stop <= start:
            return False
        # Looked at on the CPU: a temporary tensor on the device could lie just there, and be found next time.
        return bool((driver.bytes_at(start, stop - start, str(self._device)).cpu() != UNWRITTEN).any())

    def _given_out(self) -> list[tuple[int, int]]:
        """(address, bytes) of every allocation since :meth:`poison`; recording ends here."""
        trace = self._snapshot(self._device)["device_traces"][self._device.index]
        self._record(enabled=None)
        return [(entry["addr"], entry["size"]) for entry in trace if entry["action"] == "alloc"]

    def events(self, count: int, calls: Sequence[Call] = ()) -> list[float]:
        """Microseconds between two events around each call, the cache flushed before it; ``count`` empty ones first."""
        pairs = []
        for call in (*[_nothing] * count, *calls):
            before, after = self._event(enable_timing=True), self._event(enable_timing=True)
            self.flush()
            self._record_event(before)
            call()
            self._record_event(after)
            pairs.append((before, after))
        self.synchronize()
        return [self._elapsed(before, after) * 1000 for before, after in pairs[count:]]

    def replay(self, region: int, calls: Sequence[Call]) -> list[object]:
        """Replay all calls of a region from one CUDA graph, captured the first time; the results it writes to.

        Raises:
            NotCapturable: a call cannot be captured, or leaves a stream of its own unjoined.
        """
        if region not in self._replays:
            self._replays[region], self._results[region] = self._captured(calls)
        self._replays[region]()
        self.synchronize()
        return self._results[region]

    def forget(self) -> None:
        """Drop captured graphs: weights or the model they read have changed."""
        self._replays.clear()
        self._results.clear()

    def _captured(self, calls: Sequence[Call]) -> tuple[Call, list[object]]:
        graph, results = self._graph(), []
        stream = torch.cuda.Stream(self._device)
        try:
            with torch.cuda.stream(stream):  # libraries set themselves up per stream
                for call in calls[:_CAPTURE_WARMUPS]:
                    call()
            self.synchronize()
            with self._capture(graph, stream=stream, capture_error_mode="thread_local"):
                for call in calls:
                    results.append(call())
        except RuntimeError as error:
            raise NotCapturable(str(error).partition("\n")[0]) from error
        graph.replay()
        self.synchronize()
        return graph.replay, results

    def profile(self, calls: Sequence[Call]) -> list[tuple[str, int, float]]:
        """(kernel, launches, microseconds in all) over the calls, from torch's profiler, the longest first."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for call in calls:
                call()
            self.synchronize()
        kernels = [
            (event.key, event.count, float(event.device_time_total))
            for event in profiler.key_averages()
            if event.device_time_total > 0
        ]
        return sorted(kernels, key=lambda kernel: -kernel[2])

    @contextmanager
    def wall(self, into: list[float]) -> Iterator[None]:
        """Appends microseconds of wall time, the device idle before and after."""
        self.synchronize()
        start = time.perf_counter_ns()
        yield
        self.synchronize()
        into.append((time.perf_counter_ns() - start) / 1000)


def untouched_behind(
    address: int, size: int, poisoned: Sequence[tuple[int, int]], given: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """The bytes behind a storage that must still be poison, as (start, stop); empty if none can be told.

    Args:
        address, size: the storage, in bytes.
        poisoned: (address, bytes) of the spans that were filled.
        given: (address, bytes) of all allocations since, the storage's own among them.

    >>> untouched_behind(1000, 100, [(0, 9999)], [(1000, 100)])
    (1100, 5196)
    >>> untouched_behind(1000, 100, [(0, 9999)], [(1000, 100), (1536, 8)])
    (1100, 1536)
    >>> untouched_behind(1000, 100, [(0, 9999)], [(1000, 200), (1000, 100)])  # what had it before may have written
    (1100, 1100)
    """
    start = address + size
    span = next((s for s in poisoned if s[0] <= address < s[0] + s[1]), None)
    if span is None:
        return start, start
    stop = min(start + _LOOK_BEHIND, span[0] + span[1])
    own = 0
    for other, length in given:
        if other <= address < other + length:
            own += 1
        elif other < start < other + -(-length // _SLACK) * _SLACK:
            own += 2  # another one held bytes just behind this one's end
        elif start <= other < stop:
            stop = other
    return (start, stop) if own == 1 else (start, start)


def _nothing() -> None:
    pass

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
_SMALL_BLOCK, _SMALL_BLOCKS = 1 << 20, 32  # tensors up to 1 MiB come from a pool of their own
_LEAST_POISON = 64 << 20
_CAPTURE_WARMUPS = 2

Call = Callable[[], object]


def use_cache(folder: str) -> None:
    """Have Triton read compiled kernels from ``folder``, and compilers put their files there."""
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
        self._device = torch.device(device)
        torch.cuda.set_device(self._device.index or 0)
        torch.empty(1, device=self._device)
        properties = torch.cuda.get_device_properties(self._device)
        if memory_cap:
            share = min(1.0, memory_cap / properties.total_memory)
            torch.cuda.set_per_process_memory_fraction(share, self._device)
        self._flush = torch.empty(2 * properties.L2_cache_size, dtype=torch.uint8, device=self._device)
        self._event = torch.cuda.Event
        self._synchronize = torch.cuda.synchronize
        self._graph = torch.cuda.CUDAGraph
        self._capture = torch.cuda.graph
        self._snapshot = torch.cuda.memory_snapshot
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

    def poison(self, size: int) -> None:
        """Fill memory that the next tensors will be given with bytes that are NaN in every float dtype.

        ``size`` is what the next calls will need, in bytes.
        """
        self.synchronize()
        free, _total = torch.cuda.mem_get_info(self._device)
        blocks = [self._byte_block(_SMALL_BLOCK) for _ in range(_SMALL_BLOCKS)]
        blocks.append(self._byte_block(min(max(size, _LEAST_POISON), free // 4)))
        del blocks
        for segment in self._snapshot():
            if segment["device"] != self._device_with_index.index:
                continue
            for block in segment["blocks"]:
                if block["state"] == "inactive":
                    driver.bytes_at(block["address"], block["size"], str(self._device)).fill_(UNWRITTEN)
        self.synchronize()

    def _byte_block(self, size: int) -> torch.Tensor:
        return self._empty(size, dtype=torch.uint8, device=self._device)

    def overrun(self, output: torch.Tensor) -> bool:
        """True if bytes between an output's storage and the end of its block are not as :meth:`poison` left them.

        Only the at most 511 bytes that the allocator rounds up by are looked at.
        """
        storage = output.untyped_storage()
        size = storage.nbytes()
        spare = -size % _SLACK
        if not spare or not size or storage.device != self._device_with_index:
            return False
        tail = driver.bytes_at(storage.data_ptr() + size, spare, str(self._device))
        return bool((tail != UNWRITTEN).any())

    @property
    def _device_with_index(self) -> torch.device:
        return torch.device("cuda", self._device.index or 0)

    def events(self, count: int, calls: Sequence[Call] = ()) -> list[float]:
        """Microseconds between two events around each call, the cache flushed before it; ``count`` empty ones first."""
        pairs = []
        for call in (*[_nothing] * count, *calls):
            before, after = self._event(enable_timing=True), self._event(enable_timing=True)
            self.flush()
            before.record()
            call()
            after.record()
            pairs.append((before, after))
        self.synchronize()
        return [before.elapsed_time(after) * 1000 for before, after in pairs[count:]]

    def replay(self, region: int, calls: Sequence[Call], times: int) -> list[object]:
        """Replay all calls of a region from one CUDA graph, captured the first time; the results it writes to.

        Raises:
            NotCapturable: a call cannot be captured, or leaves a stream of its own unjoined.
        """
        if region not in self._replays:
            self._replays[region], self._results[region] = self._captured(calls)
        replay = self._replays[region]
        for _ in range(times):
            replay()
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


def _nothing() -> None:
    pass

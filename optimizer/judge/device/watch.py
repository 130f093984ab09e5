"""A look at a worker's device memory from outside. CUDA has no resource limit; torch's own cap binds only torch.

A thread asks the driver's management library now and then how much the worker's process holds, and kills the process
when that is over its limit. Between two looks a worker can take more, and does until the next.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from types import TracebackType

import torch

from optimizer.judge.isolation.walls import Wall

POLL_S = 0.05
_MOST_PROCESSES = 256
_NOT_KNOWN = (1 << 64) - 1


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class ManagementUnavailable(Exception):
    """The driver's management library is missing or does not answer: why."""


class Management:
    """The part of NVML that is needed here: which process holds how much of one device.

    Raises:
        ManagementUnavailable: see there.
    """

    def __init__(self, device: str = "cuda") -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise ManagementUnavailable("libnvidia-ml.so.1 is not there") from error
        self._check("nvmlInit", self._library.nvmlInit_v2())
        uuid = str(torch.cuda.get_device_properties(torch.device(device)).uuid)
        self._device = ctypes.c_void_p()
        name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        found = self._library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self._device))
        self._check("nvmlDeviceGetHandleByUUID", found)
        self.used()

    def used(self) -> dict[int, int]:
        """Bytes by process id. Raises ManagementUnavailable."""
        count = ctypes.c_uint(_MOST_PROCESSES)
        rows = (_Process * _MOST_PROCESSES)()
        code = self._library.nvmlDeviceGetComputeRunningProcesses_v3(
            self._device, ctypes.byref(count), ctypes.byref(rows)
        )
        self._check("nvmlDeviceGetComputeRunningProcesses", code)
        return {row.pid: row.bytes for row in rows[: count.value] if row.bytes != _NOT_KNOWN}

    def _check(self, call: str, code: int) -> None:
        if code:
            raise ManagementUnavailable(f"{call} failed with code {code}")


class MemoryWatch:
    """Kills a worker that holds more device memory than ``limit`` bytes. A context manager around its evaluation.

    Without a management library the whole device's use beyond what it was on entering is looked at instead.
    """

    def __init__(self, pid: int, limit: int, management: Management | None, device: str = "cuda") -> None:
        self._device = device
        self._pid = pid
        self._limit = limit
        self._management = management
        self._over = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, name="device-memory-watch", daemon=True)
        self._before = self._device_used()

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    @property
    def problem(self) -> str:
        """What the worker was killed for; empty if it was not."""
        if not self._over:
            return ""
        return (
            f"it held {self._over / 2**30:.1f} GiB of device memory and was killed; "
            f"{self._limit / 2**30:.1f} GiB are allowed, the judge's own tensors not counted"
        )

    def _look(self) -> None:
        while not self._end.wait(POLL_S):
            held = self._held()
            if held > self._limit:
                self._over = held
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
                return

    def _held(self) -> int:
        if self._management is None:
            return max(0, self._device_used() - self._before)
        try:
            return self._management.used().get(self._pid, 0)
        except ManagementUnavailable:
            return 0  # a device that just lost a process answers again at the next look

    def _device_used(self) -> int:
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free


def memory_walls(limit: int, missing: str) -> tuple[Wall, ...]:
    """What is and what is not enforced of device memory, as walls of a verdict. ``missing``: why NVML is not there."""
    watched = (
        "the whole device's use is watched instead of the process's: " + missing
        if missing
        else f"a worker over {limit / 2**30:.1f} GiB is killed, looked at every {POLL_S * 1000:.0f} ms from outside"
    )
    return (
        Wall("device memory cap", True, f"torch's allocator stops at {limit / 2**30:.1f} GiB"),
        Wall("device memory watch", not missing, watched),
    )

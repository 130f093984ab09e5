"""What the judge must know of the device that candidates run on: free memory, the last cache, a rough clock."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from optimizer.machine import MachineFacts


def cache_bytes(device: torch.device, machine: MachineFacts) -> int:
    """The last cache before memory, in bytes: L3 on the CPU, L2 on a GPU."""
    if device.type == "cpu":
        return machine.l3_bytes
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def available_bytes(device: torch.device) -> int:
    """Memory that can be had there, on the CPU without swapping; unbounded where the kernel does not say."""
    if device.type != "cpu":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return sys.maxsize


def quick_seconds(model: torch.nn.Module, inputs: Sequence[torch.Tensor], device: torch.device) -> float:
    """Best of three eager calls: on this thread's CPU clock, or by events on a GPU."""
    best = float("inf")
    with torch.no_grad():
        for _ in range(3):
            if device.type == "cpu":
                start = time.thread_time()
                model(*inputs)
                best = min(best, time.thread_time() - start)
                continue
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            model(*inputs)
            last.record()
            last.synchronize()
            best = min(best, first.elapsed_time(last) / 1e3)
    return best

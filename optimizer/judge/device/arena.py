"""Device memory shared with a worker, laid out like the memory files of the CPU.

Nothing on a GPU can be made read-only for one process: what a worker must not change is compared with a copy of it
that only the judge has (:mod:`optimizer.judge.pristine`).
"""

from __future__ import annotations

import torch

from optimizer.judge.arena import Arena
from optimizer.judge.device import driver

_ALIGN = 64


class DeviceArena(Arena):
    """One block of device memory; ``handle`` (hex) opens it in another process. ``size`` is in bytes.

    Raises:
        DeviceFault: the device has no such room.
    """

    def __init__(self, name: str, size: int, device: str = "cuda") -> None:
        self.name = name
        self.size = -(-max(size, _ALIGN) // _ALIGN) * _ALIGN
        self.descriptor = -1
        self.sealed = False
        self._pointer = driver.allocate(self.size, device)
        self.handle = driver.share(self._pointer).hex()
        self.bytes = driver.bytes_at(self._pointer, self.size, device)

    def seal(self) -> None:
        """Nothing to do: see the module's text."""

    def close(self) -> None:
        """Give the memory back. No tensor over it may be used any more."""
        if self._pointer:
            torch.cuda.synchronize()
            self.bytes = torch.empty(0, dtype=torch.uint8)
            driver.free(self._pointer)
            self._pointer = 0

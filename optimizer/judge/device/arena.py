"""Device memory shared with a worker, laid out like the memory files of the CPU.

Nothing on a GPU can be made read-only for one process: what a worker must not change is compared with a copy of it
that only the judge has (:class:`Pristine`).
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
        self._pointer = driver.allocate(self.size, device)
        self.handle = driver.share(self._pointer).hex()
        self.bytes = driver.bytes_at(self._pointer, self.size, device)

    def seal(self) -> None:
        """Nothing to do: see :class:`Pristine`."""

    def close(self) -> None:
        """Give the memory back. No tensor over it may be used any more."""
        if self._pointer:
            torch.cuda.synchronize()
            self.bytes = torch.empty(0, dtype=torch.uint8)
            driver.free(self._pointer)
            self._pointer = 0


class Pristine:
    """A copy of memory that a worker could write to, and must not.

    Takes as many bytes again as ``memory`` (a uint8 tensor) has.
    """

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self._copy = memory.clone()

    def renew(self) -> None:
        """What is there now is right."""
        self._copy.copy_(self._memory)

    def intact(self) -> bool:
        """True if not a byte was changed since."""
        return torch.equal(self._memory, self._copy)

    def restore(self) -> None:
        """Put the bytes back, for the next candidate."""
        self._memory.copy_(self._copy)

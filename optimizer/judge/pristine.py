"""Copies of memory that cannot be sealed and that a worker must not change: on a GPU, inputs and weights."""

from __future__ import annotations

import torch

_CHUNK = 1 << 28  # bytes compared at a time: a comparison takes an eighth of them


class Pristine:
    """A copy of some memory, to compare with and to put back. Takes as many bytes again as ``memory`` (uint8) has."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self._copy = memory.clone()

    def renew(self) -> None:
        """What is there now is right."""
        self._copy.copy_(self._memory)

    def intact(self) -> bool:
        """True if not a byte was changed since."""
        return all(
            torch.equal(
                _words(self._memory[first : first + _CHUNK]), _words(self._copy[first : first + _CHUNK])
            )
            for first in range(0, len(self._memory), _CHUNK)
        )

    def restore(self) -> None:
        """Put the bytes back, for the next candidate."""
        self._memory.copy_(self._copy)


def _words(memory: torch.Tensor) -> torch.Tensor:
    """As 64-bit words where that is possible: eight times fewer elements to compare."""
    aligned = memory.numel() % 8 == 0 and memory.storage_offset() % 8 == 0
    return memory.view(torch.int64) if aligned else memory

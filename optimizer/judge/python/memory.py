"""The judge's memory as tensors of a worker: over memory files here, over device memory in ``judge.device.memory``."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from extractor.laws import torch_dtype
from optimizer.languages.abi import ITEM_BYTES

_PROT_READ, _PROT_WRITE = 1, 2
KINDS = ("inputs", "weights", "outputs")


class Memory(Protocol):
    """Inputs, weights and outputs of the judge, seen from a worker."""

    def tensor(self, kind: str, abi: Sequence[Any], base: int) -> torch.Tensor:
        """The tensor that ``abi`` (shape, stride, dtype name, offset in bytes) describes, from byte ``base`` of
        ``kind`` on. Strides are in elements."""
        ...


class MappedMemory:
    """Memory files, mapped: inputs and weights read-only, so that a write to them ends the process.

    Each tensor has a storage of its own that spans exactly its elements, so that addresses beside them are beside it.
    """

    def __init__(self, files: Sequence[int], sizes: Mapping[str, int]) -> None:
        self.bases = {
            kind: _map(file, sizes[kind], writable=kind == "outputs")
            for kind, file in zip(KINDS, files, strict=True)
        }

    def tensor(self, kind: str, abi: Sequence[Any], base: int) -> torch.Tensor:
        shape, stride, dtype, offset = abi
        if any(size == 0 for size in shape):
            return torch.empty_strided(shape, stride, dtype=torch_dtype(dtype))
        elements = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1
        place = self.bases[kind] + base + offset
        memory = (ctypes.c_char * (elements * ITEM_BYTES[dtype])).from_address(place)
        return torch.frombuffer(memory, dtype=torch_dtype(dtype)).as_strided(shape, stride)


def _map(file: int, size: int, *, writable: bool) -> int:
    """Address of a whole memory file. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    protection = _PROT_READ | (_PROT_WRITE if writable else 0)
    address = libc.mmap(None, max(size, 1), protection, mmap.MAP_SHARED, file, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap failed")
    os.close(file)
    return int(address)

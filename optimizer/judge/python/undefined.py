"""What the lanes of a load hold that its mask leaves out, when the kernel says nothing about them: anything.

On a GPU it is whatever the registers held. Here it is one of three things that show in sums, products and maxima alike.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

_TURNS = itertools.count()
_BYTES = (0xFF, 0x7F, 0xFE)
# NaN, and the largest and smallest numbers, as bit patterns.
_PATTERNS = {
    "fp64": (0x7FF8 << 48, 0x7FEF << 48, 0xFFEF << 48),
    "fp32": (0x7FC00000, 0x7F7F0000, 0xFF7F0000),
    "fp16": (0x7E00, 0x7BFF, 0xFBFF),
    "bf16": (0x7FC0, 0x7F7F, 0xFF7F),
    "fp8e4nv": (0x7F, 0x7E, 0xFE),
    "fp8e5": (0x7F, 0x7B, 0xFB),
}


def undefined(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of the interpreter's type for a Triton ``dtype``, to be read by nobody: another value each time.

    Turns are taken in an order without a short period, so that each load of a kernel sees all of them.
    """
    turn = (next(_TURNS) * 2654435761 >> 12) % len(_BYTES)
    if dtype.primitive_bitwidth == 1:
        return np.full(shape, turn != 1, dtype=np.bool_)
    size = dtype.primitive_bitwidth // 8
    patterns = _PATTERNS.get(dtype.name, tuple(int.from_bytes(bytes([byte] * size)) for byte in _BYTES))
    bits = np.full(shape, patterns[turn], dtype=f"uint{8 * size}")
    kept_as_bits = dtype.name.startswith(("bf16", "fp8")) or not (
        dtype.is_floating() or dtype.is_int_signed()
    )
    return bits if kept_as_bits else bits.view(f"{'float' if dtype.is_floating() else 'int'}{8 * size}")

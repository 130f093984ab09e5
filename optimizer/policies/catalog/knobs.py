"""Schedule knobs of each template, and the values the catalog searches over.

A *schedule* is one setting of a template's knobs. Schedules never change what a candidate computes, only how
it walks memory and registers.
"""

from __future__ import annotations

from dataclasses import dataclass

BF16_DOT = "avx512_bf16"
BODIES = (BF16_DOT, "avx512f", "avx2", "portable")
SPECIALISED = (1, 2, 4, 8)  # row counts M a linear candidate has code of its own for
LANES = {BF16_DOT: 16, "avx512f": 16, "avx2": 8, "portable": 4}  # float32 values in one register
REGISTERS = {BF16_DOT: 32, "avx512f": 32, "avx2": 16, "portable": 16}


@dataclass(frozen=True)
class LinearKnobs:
    """``rows`` weight rows a block, ``unroll`` packs of K a step, ``ahead`` bytes of software prefetch."""

    rows: int = 1
    unroll: int = 2
    ahead: int = 8192

    def fits(self, m: int, body: str) -> bool:
        """True if the accumulators of an M-row block stay in registers."""
        return self.rows * self.unroll * m + m + 1 <= REGISTERS[body]


@dataclass(frozen=True)
class AttentionKnobs:
    """``keys`` scored together, ``block`` positions a softmax step, ``chunk`` value vectors, ``fetch`` mode."""

    keys: int = 8
    block: int = 256
    chunk: int = 4
    fetch: int = 1

    def fits(self, group: int, v_width: int, body: str) -> bool:
        """True if the accumulators stay in registers and a chunk is no wider than a value row."""
        spare = REGISTERS[body] - 4
        return (
            self.keys * group + group <= spare
            and self.chunk * group <= spare
            and (self.chunk == 1 or self.chunk * LANES[body] <= v_width)
        )


@dataclass(frozen=True)
class RowKnobs:
    """Loop ``unroll``; ``buffer``: values that several loops of a row need are kept in a row buffer."""

    unroll: int = 1
    buffer: bool = False


Knobs = LinearKnobs | AttentionKnobs | RowKnobs

LINEAR_SPACE = tuple(
    LinearKnobs(rows, unroll, ahead)
    for rows in (1, 2, 4)
    for unroll in (1, 2, 4)
    for ahead in (0, 4096, 8192, 16384)
)
ATTENTION_SPACE = tuple(
    AttentionKnobs(keys, 256, chunk, fetch)
    for keys in (2, 4, 8, 16)
    for chunk in (1, 2, 4, 8)
    for fetch in (0, 1, 2)
)
ROW_SPACE = tuple(RowKnobs(unroll, buffer) for unroll in (1, 2, 4) for buffer in (False, True))

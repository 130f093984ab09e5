"""What the graph patch needs to know of a kernel: two small Protocols, so that it knows no language.

A :class:`Kernel` is an accepted candidate, not yet tied to a place. Binding it to one site's weights gives a
:class:`Graft`, the callable that replaces the region there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from extractor.families import Family

if TYPE_CHECKING:
    import torch


class Graft(Protocol):
    """A kernel bound to the weights of one site.

    ``calls`` counts launches, kept by whoever really launches: it is what engagement is proved with.
    """

    calls: int

    def __call__(self, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        """Fresh output tensors, in the region's output order. Inputs are not written."""


class Kernel(Protocol):
    """An accepted candidate."""

    @property
    def id(self) -> str:
        """Its name in ledgers."""

    @property
    def op_key(self) -> str:
        """The operator it implements."""

    @property
    def family(self) -> Family:
        """The operator's family."""

    @property
    def packs_weights(self) -> bool:
        """True if its weights are worth moving into one buffer. Raises as ``bind`` does."""

    def serves(self, batch: int, rows: int) -> bool:
        """True if it was accepted for decode steps of ``batch`` sequences and ``rows`` = M."""

    def bind(
        self,
        weights: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> Graft:
        """Tie it to one site. ``inputs`` and ``outputs`` may be fake: only shape, stride and dtype are read.

        Raises:
            CompileFailed: it does not build here (a KernelgraftError).
        """

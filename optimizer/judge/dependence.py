"""Which bytes of its inputs an operator cannot do without: those its outputs depend on, by the reference's derivative.

A lower bound on what any kernel reads. Positions behind a mask, rows that a slice leaves out and elements whose
influence vanishes beside the strongest of their tensor have (almost) no derivative and are not counted; nor are
integers and booleans.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from optimizer.judge.arena import Placed
from optimizer.judge.oracle import as_tuple

# An element counts if the outputs move by at least this share of what the most influential of its tensor moves them:
# what a kernel may leave out unnoticed, such as a value whose softmax weight rounds away, is not counted.
NOTICEABLE = 2.0**-12


def needed_bytes(
    model: torch.nn.Module, inputs: Sequence[torch.Tensor], places: Sequence[Placed]
) -> int | None:
    """Bytes of memory that one call must read of ``inputs``, each once; None if the reference has no derivative."""
    floats = [i for i, tensor in enumerate(inputs) if tensor.dtype.is_floating_point]
    leaves = [tensor.detach().clone() for tensor in inputs]
    for i in floats:
        leaves[i].requires_grad_(True)
    generator = torch.Generator().manual_seed(0)  # not all ones: a softmax does not move in that direction
    try:
        with torch.enable_grad():
            outputs = [o for o in as_tuple(model(*leaves)) if o.requires_grad]
            if not outputs:
                return None
            directions = [torch.randn(o.shape, generator=generator).to(o) for o in outputs]
            slopes = torch.autograd.grad(outputs, [leaves[i] for i in floats], directions, allow_unused=True)
    except RuntimeError:
        return None
    needed: dict[int, torch.Tensor] = {}  # by storage: which of its bytes' elements
    total = 0
    for i, slope in zip(floats, slopes, strict=True):
        place, size = places[i], inputs[i].element_size()
        if slope is None or not slope.numel():
            continue
        strength = slope.detach().float().abs().nan_to_num(0.0, 0.0, 0.0)
        felt = (strength >= NOTICEABLE * strength.max()) & (strength > 0)
        elements = torch.arange(place.span // size, device=slope.device).as_strided(
            place.shape, place.stride, (place.offset - place.start) // size
        )
        before = needed.get(place.start)
        if before is None or before.numel() != place.span // size:
            before = needed[place.start] = felt.new_zeros(place.span // size)
        already = int(before.sum())
        before[elements[felt]] = True
        total += (int(before.sum()) - already) * size
    return total

"""Parity: is the patched model as close to the truth as the stock one?

The truth is the same weights run one precision up (float32 for half-precision models, float64 for float32 ones), in
one pass over prompt and forced tokens. Free-running tokens are no criterion: they differ even between two stock
engines, once two logits nearly tie. Comparing patched with stock directly is none either: a kernel that rounds less
than eager would be punished for being right.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from integrator.engine import DecodeEngine
from integrator.ledger_schema import Parity

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PARITY_MULTIPLE = 1.5
"""A patched model's RMS logit error against the truth may be this many times stock's.

Two correct bf16 roundings of the same network differ in RMS error by 10-20 % over a few dozen positions; a kernel
that drops or doubles something is off by factors. KL grows with the square of the error, so its bound is the square.
"""

_EXACT_RMS = 1e-6  # below this share of the logits' own RMS a difference is rounding of the truth itself


@torch.no_grad()
def truth_logits(model: PreTrainedModel, engine: DecodeEngine) -> torch.Tensor:
    """Logits of the forced positions from a higher-precision copy of ``model``: [batch, tokens, vocabulary] float32.

    The copy (two or four times the model's size) is freed before returning. The model must not be patched.
    """
    dtype = torch.float64 if model.dtype == torch.float32 else torch.float32
    exact = _widened(model, dtype)
    ids = torch.cat([engine.prompt_ids, engine.forced], dim=1)
    logits = exact(ids, use_cache=False, logits_to_keep=engine.tokens).logits
    del exact
    return logits.float()


ROUTED_TRIM = 1 / 8
"""Share of the worst positions left out of RMS error and KL if the step selects experts.

Where two experts' scores nearly tie, any rounding, stock's too, may select the other one, and the logits of that
position then differ by what the experts differ. One such position in thirty would decide the comparison."""


def compare(logits: torch.Tensor, truth: torch.Tensor, *, trim: float = 0.0) -> Parity:
    """Distance of ``logits`` from ``truth``, both [batch, positions, vocabulary] float32.

    The worst ``trim`` (a share) of the positions is left out of RMS error and KL, not of the other figures.
    """
    difference = logits - truth
    expected = F.log_softmax(truth, dim=-1)
    kl = F.kl_div(F.log_softmax(logits, dim=-1), expected, log_target=True, reduction="none").sum(-1)
    agreement = (logits.argmax(-1) == truth.argmax(-1)).float().mean()
    positions = int(logits.shape[0] * logits.shape[1])
    kept = positions - int(trim * positions)
    return Parity(
        rms_error=float(_smallest(difference.square().mean(-1), kept).mean().sqrt()),
        max_error=float(difference.abs().max()),
        kl=max(float(_smallest(kl, kept).mean()), 0.0),
        top1_agreement=float(agreement),
        positions=positions,
        trimmed=positions - kept,
    )


def _smallest(values: torch.Tensor, count: int) -> torch.Tensor:
    # A NaN sorts last; it must not be trimmed away.
    return values if values.isnan().any() else values.flatten().sort().values[:count]


def violation(patched: Parity, stock: Parity, *, scale: float) -> str | None:
    """The sentence that says why ``patched`` is too far from the truth, or None. ``scale``: RMS of the truth."""
    floor = _EXACT_RMS * scale
    if not patched.rms_error <= PARITY_MULTIPLE * stock.rms_error + floor:
        return (
            f"RMS logit error {patched.rms_error:.4g} against the truth is more than {PARITY_MULTIPLE} times "
            f"stock's {stock.rms_error:.4g}"
        )
    if not patched.kl <= PARITY_MULTIPLE**2 * stock.kl + 1e-7:
        return (
            f"KL divergence {patched.kl:.3g} from the truth is more than {PARITY_MULTIPLE**2:g} times "
            f"stock's {stock.kl:.3g}"
        )
    return None


def _widened(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A copy of ``model`` in ``dtype``, converted tensor by tensor so that no second narrow copy is ever held."""
    memo: dict[int, object] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            wide = tensor.detach().to(dtype)
            memo[id(tensor)] = (
                torch.nn.Parameter(wide, requires_grad=False)
                if isinstance(tensor, torch.nn.Parameter)
                else wide
            )
    exact = copy.deepcopy(model, memo)
    exact.config.dtype = dtype
    return exact.eval()

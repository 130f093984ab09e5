"""Measure the law of a recorded tensor, so that trials can draw fresh values that look like it."""

from __future__ import annotations

import torch

from extractor.keys import dtype_name
from extractor.schema import Law, LawKind

_MIN_STD = 1e-6
_SAMPLE = 1 << 20  # elements; a larger tensor is measured on an evenly spaced sample


def measure_weight(tensor: torch.Tensor) -> Law:
    """Normal law with the tensor's own mean and standard deviation."""
    mean, std = _moments(tensor)
    return Law(kind=LawKind.NORMAL, mean=mean, std=std)


def measure_input(tensor: torch.Tensor, role: str, experts: int = 0) -> Law:
    """The law of an activation, mask, table or index tensor.

    Args:
        role: what the detector says the tensor is (``cos``, ``mask``, ``ids``, ``offsets``, ...).
        experts: number of experts, for ``ids``.
    """
    if role in ("cos", "sin"):
        return Law(kind=LawKind.ROTARY)
    if role == "mask":
        return _mask_law(tensor)
    if role == "ids" and experts:
        return Law(kind=LawKind.INTEGERS, low=0, high=experts)
    if role == "offsets" and tensor.ndim == 1 and tensor.numel():
        return Law(kind=LawKind.OFFSETS, high=float(tensor[-1]))
    if tensor.dtype == torch.bool:
        return Law(kind=LawKind.INTEGERS, low=0, high=2)
    if not tensor.is_floating_point():
        return Law(kind=LawKind.RECORDED)
    mean, std = _moments(tensor)
    return Law(kind=LawKind.NORMAL, mean=mean, std=std)


def _moments(tensor: torch.Tensor) -> tuple[float, float]:
    """Mean and deviation; of the filled part only where a cache is mostly empty slots."""
    flat = tensor.detach().reshape(-1)
    if flat.numel() > _SAMPLE:
        flat = flat[:: flat.numel() // _SAMPLE]
    flat = flat.float()
    filled = flat[flat != 0]
    if 0 < filled.numel() < 0.9 * flat.numel():
        flat = filled
    if flat.numel() < 2:
        return float(flat.mean()) if flat.numel() else 0.0, 1.0
    return float(flat.mean()), max(float(flat.std()), _MIN_STD)


def _mask_law(mask: torch.Tensor) -> Law:
    """Prefix or causal where the mask is one of the two forms those laws produce; else recorded."""
    keep = mask if mask.dtype == torch.bool else mask == 0
    if mask.is_floating_point():
        lowest = torch.finfo(mask.dtype).min
        if not bool((keep | (mask == lowest)).all()):
            return Law(kind=LawKind.RECORDED)
    elif mask.dtype != torch.bool:
        return Law(kind=LawKind.RECORDED)
    if keep.ndim < 2:
        return Law(kind=LawKind.RECORDED)
    counts = keep.sum(dim=-1)
    prefix = torch.arange(mask.shape[-1], device=mask.device) < counts.unsqueeze(-1)
    if not bool((prefix == keep).all()) or not bool((counts > 0).all()):
        return Law(kind=LawKind.RECORDED)
    if mask.shape[-2] == 1:
        return Law(kind=LawKind.PREFIX_MASK)
    rows = torch.arange(mask.shape[-2], device=mask.device)
    if bool((counts - rows == (counts - rows)[..., :1]).all()):
        return Law(kind=LawKind.CAUSAL_MASK)
    return Law(kind=LawKind.RECORDED)


def describe(tensor: torch.Tensor) -> str:
    """``bfloat16[1, 32, 64]``, for messages."""
    return f"{dtype_name(tensor.dtype)}{list(tensor.shape)}"

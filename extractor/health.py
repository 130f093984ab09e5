"""Flags for tasks on which a wrong kernel could pass: constant outputs, or outputs that ignore an input."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from extractor.schema import Law, LawKind, Workload

_NEAR_ZERO = 1e-6  # absolute, in the output's own units


def examine(
    model: torch.nn.Module,
    workload: Workload,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> tuple[str, ...]:
    """What is suspicious about a task, as short phrases; none for a healthy one."""
    flags = []
    for index, output in enumerate(outputs):
        values = output.float()
        if not bool(torch.isfinite(values).all()):
            flags.append(f"output {index} is not finite")
        elif values.numel() and float(values.abs().max()) < _NEAR_ZERO:
            flags.append(f"output {index} is near zero")
        elif values.numel() > 1 and bool((values == values.reshape(-1)[0]).all()):
            flags.append(f"output {index} is constant")
    for index, spec in enumerate(workload.inputs):
        if spec.law.kind is LawKind.RECORDED:
            continue
        if not _matters(model, inputs, index, spec.law, outputs):
            flags.append(f"input {spec.name} does not matter")
    return tuple(flags)


def _matters(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    index: int,
    law: Law,
    outputs: Sequence[torch.Tensor],
) -> bool:
    changed = list(inputs)
    changed[index] = _disturbed(inputs[index], law)
    result = model(*changed)
    results = list(result) if isinstance(result, tuple | list) else [result]
    return any(not torch.equal(a, b) for a, b in zip(results, outputs, strict=True))


def _disturbed(tensor: torch.Tensor, law: Law) -> torch.Tensor:
    """Another valid value of the same tensor."""
    if law.kind is LawKind.INTEGERS:
        return ((tensor.long() + 1) % int(law.high)).to(tensor.dtype)
    if law.kind is LawKind.OFFSETS:  # every row to the last group
        last = torch.arange(len(tensor), device=tensor.device) == len(tensor) - 1
        return (
            torch.where(last, tensor, 0)
            if bool((tensor[:-1] != 0).any())
            else tensor[-1].expand(tensor.shape)
        )
    if law.kind in (LawKind.PREFIX_MASK, LawKind.CAUSAL_MASK):
        keep = tensor if tensor.dtype == torch.bool else tensor == 0
        first = torch.arange(tensor.shape[-1], device=tensor.device) == 0
        only = (keep & first).expand(tensor.shape)
        if tensor.dtype == torch.bool:
            return only
        return torch.zeros_like(tensor).masked_fill(~only, torch.finfo(tensor.dtype).min)
    return (tensor.roll(1, -1) * 1.5 + 0.25).to(tensor.dtype)

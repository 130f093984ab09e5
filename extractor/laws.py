"""Fresh trial tensors: draw inputs and weights that follow the recorded laws, strides and aliasing kept.

Uniform unit data lets kernels that skip work pass; the recorded mean and spread, plus a few outliers at
8 standard deviations in every float activation, do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extractor.schema import LawKind, TensorSpec, WeightSpec, Workload

if TYPE_CHECKING:
    import torch

OUTLIER_STD = 8.0  # standard deviations from the mean
OUTLIER_EVERY = 512  # one element in so many


def torch_dtype(name: str) -> torch.dtype:
    """``"bfloat16"`` -> ``torch.bfloat16``."""
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown dtype {name!r}")
    return dtype


def draw_inputs(
    workload: Workload, generator: torch.Generator, recorded: list[torch.Tensor] | None = None
) -> list[torch.Tensor]:
    """Fresh inputs of a workload. ``recorded`` supplies the values of inputs whose law is ``recorded``.

    Inputs that share an alias group are views of one storage here too; where they overlap, the values of the
    first one win.
    """
    import torch

    storages: dict[int | str, torch.Tensor] = {}
    spans: dict[int | str, int] = {}
    for spec in workload.inputs:
        key = spec.name if spec.alias_group is None else spec.alias_group
        spans[key] = max(spans.get(key, 0), storage_span(spec))
    drawn: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    angles: dict[str, torch.Tensor] = {}
    for position, spec in enumerate(workload.inputs):
        key = spec.name if spec.alias_group is None else spec.alias_group
        if key not in storages:
            storages[key] = torch.zeros(spans[key], dtype=torch_dtype(spec.dtype))
        drawn.append(torch.as_strided(storages[key], spec.shape, spec.stride, spec.storage_offset))
        values.append(_draw(spec, generator, angles, recorded[position] if recorded else None))
    for spec, view, fresh in reversed(list(zip(workload.inputs, drawn, values, strict=True))):
        if 0 in spec.stride and fresh.numel() > 1:  # a broadcast input: the view's own first copy decides
            _assign_broadcast(view, fresh)
        else:
            view.copy_(fresh)
    return drawn


def draw_weights(weights: tuple[WeightSpec, ...], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Fresh weights by attribute, following their recorded laws."""
    import torch

    result: dict[str, torch.Tensor] = {}
    for spec in weights:
        dtype = torch_dtype(spec.dtype)
        values = torch.empty(spec.shape, dtype=_drawn_in(dtype)).normal_(generator=generator)
        result[spec.attribute] = _narrowed(values * spec.law.std + spec.law.mean, dtype)
    return result


def storage_span(spec: TensorSpec) -> int:
    """Elements of storage needed to hold a tensor with this shape, stride and offset."""
    if any(size == 0 for size in spec.shape):
        return spec.storage_offset
    reach = sum((size - 1) * stride for size, stride in zip(spec.shape, spec.stride, strict=True))
    return spec.storage_offset + reach + 1


def _draw(
    spec: TensorSpec,
    generator: torch.Generator,
    angles: dict[str, torch.Tensor],
    recorded: torch.Tensor | None,
) -> torch.Tensor:
    import torch

    law, dtype = spec.law, torch_dtype(spec.dtype)
    match law.kind:
        case LawKind.RECORDED:
            if recorded is None:
                raise ValueError(f"input {spec.name!r} has no law and no recorded value was given")
            return recorded.clone()
        case LawKind.SOURCE:
            raise ValueError(f"input {spec.name!r} is drawn by its task's own code: Task.source_inputs")
        case LawKind.NORMAL:
            values = torch.empty(spec.shape, dtype=_drawn_in(dtype)).normal_(generator=generator)
            flat = values.view(-1)
            if flat.numel() >= OUTLIER_EVERY:
                count = flat.numel() // OUTLIER_EVERY
                where = torch.randint(flat.numel(), (count,), generator=generator)
                signs = torch.randint(2, (count,), generator=generator) * 2 - 1
                flat[where] = OUTLIER_STD * signs.to(flat.dtype)
            return _narrowed(values * law.std + law.mean, dtype)
        case LawKind.UNIFORM:
            values = torch.empty(spec.shape, dtype=_drawn_in(dtype)).uniform_(
                law.low, law.high, generator=generator
            )
            return _narrowed(values, dtype)
        case LawKind.INTEGERS:
            return torch.randint(
                int(law.low), max(int(law.high), int(law.low) + 1), spec.shape, generator=generator
            ).to(dtype)
        case LawKind.OFFSETS:
            groups = spec.shape[0]
            owners = torch.randint(groups, (int(law.high),), generator=generator)
            return torch.bincount(owners, minlength=groups).cumsum(0).to(dtype)
        case LawKind.PREFIX_MASK | LawKind.CAUSAL_MASK:
            return _mask(spec, generator)
        case LawKind.ROTARY:
            return _rotary(spec, generator, angles)


def _drawn_in(dtype: torch.dtype) -> torch.dtype:
    """In fp64 for fp64: values that fit fp32 would hide a kernel that reads them as such."""
    import torch

    return torch.float64 if dtype == torch.float64 else torch.float32


def _narrowed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values at a tensor's dtype; fp8 is clamped, since what lies beyond its range becomes NaN."""
    import torch

    if dtype.is_floating_point and dtype.itemsize == 1:
        values = values.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
    return values.to(dtype)


def _mask(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """A mask over the last axis that keeps a prefix; a causal one keeps one more for each later row."""
    import torch

    length = spec.shape[-1]
    rows = spec.shape[-2] if len(spec.shape) > 1 and spec.law.kind is LawKind.CAUSAL_MASK else 1
    longest = max(length - rows + 1, 1)
    kept = int(torch.randint(1, longest + 1, (1,), generator=generator))
    if spec.law.kind is LawKind.CAUSAL_MASK:
        limits = torch.arange(spec.shape[-2]).unsqueeze(-1) + kept
    else:
        limits = torch.tensor(kept)
    keep = (torch.arange(length) < limits).expand(spec.shape)
    dtype = torch_dtype(spec.dtype)
    if dtype == torch.bool:
        return keep
    return torch.zeros(spec.shape, dtype=dtype).masked_fill(~keep, torch.finfo(dtype).min)


def _rotary(spec: TensorSpec, generator: torch.Generator, angles: dict[str, torch.Tensor]) -> torch.Tensor:
    """cos or sin of fresh angles, both halves of the last axis equal; the partner table reuses the angles."""
    import torch

    partner = spec.law.partner
    theta = angles.get(partner) if partner else None
    if theta is None or theta.shape != torch.Size(spec.shape):
        half = torch.empty((*spec.shape[:-1], (spec.shape[-1] + 1) // 2)).uniform_(
            0.0, 6.2831853, generator=generator
        )
        theta = torch.cat((half, half), dim=-1)[..., : spec.shape[-1]]
    angles[spec.name] = theta
    is_sine = "sin" in spec.name
    return (theta.sin() if is_sine else theta.cos()).to(torch_dtype(spec.dtype))


def _assign_broadcast(view: torch.Tensor, values: torch.Tensor) -> None:
    """Write through a view with stride-0 axes by writing the slice at index 0 of each such axis."""
    for axis, stride in enumerate(view.stride()):
        if stride == 0:
            view = view.narrow(axis, 0, 1)
            values = values.narrow(axis, 0, 1)
    view.copy_(values)

"""Resolve a task's weights: copied in the task folder, drawn again by seed, or read from the checkpoint.

Vectors (norm weights, biases) are small and always copied; a matrix of a preset is drawn again alone; a matrix of
a checkpoint is read by its key. ``copied`` in the task's weight source means that everything lies in the folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from extractor.errors import KernelgraftError
from extractor.laws import torch_dtype
from extractor.presets import PREFIX
from extractor.schema import Site, TaskSpec, WeightSource, WeightSpec

if TYPE_CHECKING:
    import torch

TASK_WEIGHTS = "weights.safetensors"
SMALL = 1 << 16  # elements; up to this many are copied in any case


class WeightsUnavailable(KernelgraftError):
    """A weight that was stored by reference cannot be found again."""

    template = (
        "weight {parameter!r} of {model!r} cannot be resolved: {problem}; extract again with --copy-weights"
    )


def resolve(folder: Path, spec: TaskSpec, site: Site) -> dict[str, torch.Tensor]:
    """The weights of one site by attribute, on the CPU.

    Raises:
        WeightsUnavailable: a reference leads nowhere.
    """
    copied = _read(folder / TASK_WEIGHTS, set(site.parameters.values()))
    found: dict[str, torch.Tensor] = {}
    for weight in spec.weights:
        parameter = site.parameters[weight.attribute]
        if parameter in copied:
            found[weight.attribute] = copied[parameter]
        else:
            found[weight.attribute] = _by_reference(spec.weight_source, parameter, weight)
    return found


def must_copy(source: WeightSource, parameter: str, tensor: torch.Tensor) -> bool:
    """Whether a weight cannot be left to a reference."""
    if tensor.numel() <= SMALL or tensor.ndim < 2:
        return True
    if source.model.startswith(PREFIX):
        return False
    location = _locate(source, parameter)
    return location is None


def _by_reference(source: WeightSource, parameter: str, weight: WeightSpec) -> torch.Tensor:
    if source.model.startswith(PREFIX):
        from extractor.random_weights import draw_matrix

        if source.seed is None:
            raise WeightsUnavailable(
                parameter=parameter, model=source.model, problem="its seed is not recorded"
            )
        return draw_matrix(weight.shape, torch_dtype(weight.dtype), source.seed, parameter)
    path = _locate(source, parameter)
    if path is None:
        problem = "the checkpoint is gone or has no tensor of that name"
        raise WeightsUnavailable(parameter=parameter, model=source.model, problem=problem)
    tensor = _read(path, {parameter})[parameter]
    if tuple(tensor.shape) != weight.shape:
        problem = f"the checkpoint holds shape {tuple(tensor.shape)}, the task {weight.shape}"
        raise WeightsUnavailable(parameter=parameter, model=source.model, problem=problem)
    return tensor.to(torch_dtype(weight.dtype))


def _locate(source: WeightSource, parameter: str) -> Path | None:
    """The safetensors file of the checkpoint that holds ``parameter``; only the local cache is searched."""
    folder = Path(source.model)
    if folder.is_dir():
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        index_path = index if index.is_file() else None
        single_path = single if single.is_file() else None
    else:
        index_path = _cached(source, "model.safetensors.index.json")
        single_path = _cached(source, "model.safetensors")
    if index_path is not None:
        name = json.loads(index_path.read_text(encoding="utf-8"))["weight_map"].get(parameter)
        return index_path.parent / name if name else None
    if single_path is not None and parameter in _names(single_path):
        return single_path
    return None


def _cached(source: WeightSource, name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source.model, name, revision=source.revision)
    return Path(found) if isinstance(found, str) else None


def _names(path: Path) -> set[str]:
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        return set(file.keys())


def _read(path: Path, names: set[str]) -> dict[str, torch.Tensor]:
    from safetensors import safe_open

    if not path.is_file():
        return {}
    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in names & set(file.keys())}

"""One candidate's task as files, for a process that shares no memory with the judge.

``plan.json`` says what to construct and call; ``tensors.safetensors`` holds the storages of weights and inputs as
bytes, so that strides, offsets and tensors that share a storage survive. Each storage ends with its last element.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from extractor.laws import torch_dtype
from optimizer.candidate import Candidate
from optimizer.judge.arena import Arena, Region
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subject, Subjects
from optimizer.languages.abi import ITEM_BYTES

PLAN, TENSORS = "plan.json", "tensors.safetensors"


def write_handout(
    folder: Path,
    subjects: Subjects,
    settings: JudgeSettings,
    candidate: Candidate,
    extensions: Mapping[str, str] | None,
) -> Path:
    """Write a candidate, weight copy 0 and the first checked inputs of every workload; the plan's path.

    Args:
        extensions: where finished CUDA extensions are, as in a worker's plan.
    """
    spec = subjects.task.spec
    storages: dict[str, torch.Tensor] = {}
    weights = _described("weights", subjects.weights, subjects.weight_region, storages)
    plan = {
        "device": settings.device,
        "threads": settings.threads,
        "source": candidate.source,
        "init": list(spec.init),
        "constants": {str(position): value for position, value in spec.constants.items()},
        "seed": subjects.seeds[0],
        "weights": dict(zip((weight.attribute for weight in spec.weights), weights, strict=True)),
        "workloads": [
            {
                "id": subject.id,
                "inputs": _described(f"inputs{number}", subjects.inputs, subject.inputs.check, storages),
            }
            for number, subject in enumerate(subjects.subjects)
        ],
        "heaviest": heaviest(subjects.subjects),
        "extensions": dict(extensions) if extensions else None,
    }
    save_file(storages, folder / TENSORS)
    (folder / PLAN).write_text(json.dumps(plan), encoding="utf-8")
    return folder / PLAN


def heaviest(subjects: Sequence[Subject]) -> str:
    """Name of the timed workload that weighs most; of the first one if none is timed."""
    timed = [subject for subject in subjects if subject.timed] or list(subjects[:1])
    return max(timed, key=lambda subject: subject.eager_seconds * subject.workload.calls).id


class Handout:
    """What :func:`write_handout` wrote, read back on a device. Every storage is an allocation of its own."""

    def __init__(self, plan: Path) -> None:
        self.plan: dict[str, Any] = json.loads(plan.read_text(encoding="utf-8"))
        self.device: str = self.plan["device"]
        self._storages = load_file(plan.parent / TENSORS)
        self._placed: dict[str, torch.Tensor] = {}

    def weights(self) -> dict[str, torch.Tensor]:
        """By dotted name."""
        return {name: self._tensor(described) for name, described in self.plan["weights"].items()}

    def inputs(self, workload: int) -> list[torch.Tensor]:
        """Of one workload, by its place in the plan."""
        return [self._tensor(described) for described in self.plan["workloads"][workload]["inputs"]]

    def _tensor(self, described: Mapping[str, Any]) -> torch.Tensor:
        key = described["storage"]
        if key not in self._placed:
            self._placed[key] = self._storages[key].to(self.device)
        typed = self._placed[key].view(torch_dtype(described["dtype"]))
        return typed.as_strided(described["shape"], described["stride"], described["offset"])


def _described(
    kind: str, arena: Arena, region: Region, storages: dict[str, torch.Tensor]
) -> list[dict[str, Any]]:
    """The tensors of a region's first slot; their storages' bytes go into ``storages``."""
    result = []
    for placed in region.tensors:
        key = f"{kind}.{placed.start}"
        if key not in storages:
            start = region.base + placed.start
            storages[key] = arena.bytes[start : start + placed.span].cpu().clone()
        result.append(
            {
                "storage": key,
                "shape": placed.shape,
                "stride": placed.stride,
                "dtype": placed.dtype,
                "offset": (placed.offset - placed.start) // ITEM_BYTES[placed.dtype],
            }
        )
    return result

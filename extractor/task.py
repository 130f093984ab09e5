"""A task folder, loaded: the spec, the reference program, its recorded inputs, and fresh trial inputs.

Layout: ``task.py`` (a KernelBench file: ``Model``, ``get_inputs``, ``get_init_inputs``; imports torch only),
``task.json`` (:class:`extractor.schema.TaskSpec`), ``inputs.safetensors`` (the recorded storages; key
``<workload id>/<alias group or input name>``, one flat storage each).
"""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from extractor.errors import KernelgraftError
from extractor.schema import SCHEMA_VERSION, Site, TaskSpec, TensorSpec, Workload

if TYPE_CHECKING:
    import torch

TASK_SOURCE = "task.py"
TASK_SIDECAR = "task.json"
TASK_INPUTS = "inputs.safetensors"


class CorruptTask(KernelgraftError):
    """A task folder that cannot be trusted."""

    template = "task folder {path}: {problem}; extract it again with `kernelgraft extract`"


@dataclass(frozen=True)
class Task:
    """One operator task on disk.

    >>> task = Task.load(Path("runs/demo/tasks/silu_gate-1a2b3c4d5e"))  # doctest: +SKIP
    >>> task.spec.label  # doctest: +SKIP
    'G silu_gate'
    """

    folder: Path
    spec: TaskSpec

    @classmethod
    def load(cls, folder: Path) -> Task:
        """Read and verify a task folder.

        Raises:
            CorruptTask: a file is missing, does not parse, has another schema version or another hash.
        """
        sidecar = folder / TASK_SIDECAR
        try:
            text = sidecar.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptTask(path=folder, problem=f"{TASK_SIDECAR} cannot be read ({error})") from error
        try:
            spec = TaskSpec.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            raise CorruptTask(
                path=folder, problem=f"{TASK_SIDECAR} is invalid at {where}: {first['msg']}"
            ) from error
        if spec.schema_version != SCHEMA_VERSION:
            problem = f"schema version {spec.schema_version}, this kernelgraft reads {SCHEMA_VERSION}"
            raise CorruptTask(path=folder, problem=problem)
        for name, expected in spec.file_hashes.items():
            try:
                digest = file_sha256(folder / name)
            except OSError as error:
                raise CorruptTask(path=folder, problem=f"{name} cannot be read ({error})") from error
            if digest != expected:
                raise CorruptTask(path=folder, problem=f"{name} was changed after extraction")
        return cls(folder=folder, spec=spec)

    @property
    def id(self) -> str:
        """The task id, also the folder's name."""
        return self.spec.task_id

    @cached_property
    def source(self) -> str:
        """Text of ``task.py``."""
        return (self.folder / TASK_SOURCE).read_text(encoding="utf-8")

    def reference(self) -> torch.nn.Module:
        """A new ``Model`` from ``task.py`` in eval mode, without gradients: with them torch multiplies differently.

        Its weights are on the meta device until :meth:`load_weights_into`.
        """
        import torch

        location = self.folder / TASK_SOURCE
        spec = importlib.util.spec_from_file_location(f"kernelgraft_task_{self.spec.op_key[:12]}", location)
        if spec is None or spec.loader is None:
            raise CorruptTask(path=self.folder, problem=f"{TASK_SOURCE} is not importable")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with torch.device("meta"):  # no memory and no time for values that are replaced anyway
            model: torch.nn.Module = module.Model(*module.get_init_inputs())
        return model.eval().requires_grad_(False)

    def load_weights_into(self, model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
        """Bind ``weights`` (keyed by attribute) to ``model`` without copying them."""
        model.load_state_dict(weights, strict=True, assign=True)

    def recorded_inputs(self, workload_id: str) -> list[torch.Tensor]:
        """The captured inputs of a workload, with their recorded strides, offsets and aliasing."""
        import torch
        from safetensors import SafetensorError, safe_open

        workload = self.spec.workload(workload_id)
        storages: dict[str, torch.Tensor] = {}
        try:
            with safe_open(str(self.folder / TASK_INPUTS), framework="pt") as file:
                for spec in workload.inputs:
                    key = storage_key(workload, spec)
                    if key not in storages:
                        # Cloned: a mapped file is neither aligned like torch's memory nor safe to write to.
                        storages[key] = file.get_tensor(key).clone()
        except (OSError, SafetensorError) as error:
            raise CorruptTask(path=self.folder, problem=f"{TASK_INPUTS} cannot be read ({error})") from error
        return [
            torch.as_strided(
                storages[storage_key(workload, spec)], spec.shape, spec.stride, spec.storage_offset
            )
            for spec in workload.inputs
        ]

    def weights(self, site: Site | int = 0) -> dict[str, torch.Tensor]:
        """One site's real weights by attribute, resolved by reference where the folder holds no copy.

        Raises:
            WeightsUnavailable: a reference leads nowhere.
        """
        from extractor.weights import resolve

        return resolve(self.folder, self.spec, self.spec.sites[site] if isinstance(site, int) else site)

    @property
    def summary(self) -> dict[str, Any]:
        """The few facts tables show: id, label, number of sites, workload ids, total share of the decode step."""
        shares = [w.share for w in self.spec.workloads if w.share is not None and w.phase == "decode"]
        return {
            "id": self.id,
            "label": self.spec.label,
            "sites": len(self.spec.sites),
            "workloads": [w.id for w in self.spec.workloads],
            "share": shares[0] if shares else None,
        }


def storage_key(workload: Workload, spec: TensorSpec) -> str:
    """Key in ``inputs.safetensors`` of the storage an input lives in."""
    group = spec.name if spec.alias_group is None else f"storage{spec.alias_group}"
    return f"{workload.id}/{group}"


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def load_tasks(folder: Path) -> list[Task]:
    """All tasks below ``folder``, in family order then id. Raises CorruptTask for the first that cannot be trusted."""
    if not folder.is_dir():
        raise CorruptTask(path=folder, problem="no such folder")
    # Any of its files makes a folder a task's: one that lost its sidecar is damaged, not absent.
    found = {
        path.parent for name in (TASK_SIDECAR, TASK_SOURCE, TASK_INPUTS) for path in folder.glob(f"*/{name}")
    }
    # A dot in front marks a draft that a killed extraction left behind.
    tasks = [Task.load(path) for path in sorted(found) if not path.name.startswith(".")]
    return sorted(tasks, key=lambda task: (task.spec.family.order, task.id))

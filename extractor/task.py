"""A task folder, loaded: the spec, the reference program, its recorded inputs, and fresh trial inputs.

Layout: ``task.py`` (a KernelBench file: ``Model``, ``get_inputs``, ``get_init_inputs``; imports torch only),
``task.json`` (:class:`extractor.schema.TaskSpec`), ``inputs.safetensors`` (the recorded storages; key
``<workload id>/<alias group or input name>``, one flat storage each). A task imported from a KernelBench file has no
``inputs.safetensors``: its own code draws the inputs, the recorded ones too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from extractor.errors import KernelgraftError
from extractor.program import bind_state, construct, import_program, seeded, state_of
from extractor.schema import SCHEMA_VERSION, LawKind, Site, TaskSpec, TensorSpec, Workload

if TYPE_CHECKING:
    import torch

TASK_SOURCE = "task.py"
TASK_SIDECAR = "task.json"
TASK_INPUTS = "inputs.safetensors"
# Seeds of the recorded values of an imported task; not the same, or inputs would repeat the weights' numbers.
WEIGHT_SEED, INPUT_SEED = 0, 1
DEFAULT_WORKLOAD = "default"  # the id of the workload that ``get_inputs`` of an imported task draws


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

    @cached_property
    def _module(self) -> ModuleType:
        return import_program(self.folder / TASK_SOURCE, f"kernelgraft_task_{self.spec.op_key[:12]}")

    def reference(self) -> torch.nn.Module:
        """A new ``Model`` from ``task.py`` in eval mode, without gradients: with them torch multiplies differently.

        Its weights are on the meta device until :meth:`load_weights_into`; those of a constructed task are the
        recorded ones already (see :meth:`construct`).
        """
        if self.spec.constructed:
            return self.construct(WEIGHT_SEED)
        import torch

        with torch.device("meta"):  # no memory and no time for values that are replaced anyway
            model: torch.nn.Module = self._module.Model(*self._module.get_init_inputs())
        return model.eval().requires_grad_(False)

    def construct(self, seed: int) -> torch.nn.Module:
        """A new ``Model`` on the CPU with what its constructor draws under ``seed``; eval mode, without gradients.

        Its forward takes the tensors only; ``TaskSpec.constants`` are bound.

        Raises:
            ValueError: the task's weights are recorded, not constructed.
        """
        if not self.spec.constructed:
            raise ValueError(f"the weights of task {self.id} are recorded; use reference() and weights()")
        return construct(self._module, self._module.get_init_inputs(), self.spec.constants, seed)

    def source_inputs(self, workload_id: str, seed: int) -> list[torch.Tensor]:
        """The tensors that the task's own code draws for a workload under ``seed``, where that code puts them.

        Strides, offsets and aliasing are those of ``Workload.inputs``.

        Raises:
            ValueError: the task's inputs follow recorded laws (:func:`extractor.laws.draw_inputs`).
            KeyError: no such workload.
        """
        import torch

        workload = self.spec.workload(workload_id)
        if any(spec.law.kind is not LawKind.SOURCE for spec in workload.inputs):
            raise ValueError(f"inputs of task {self.id} follow recorded laws")
        name = "get_inputs" if workload_id == DEFAULT_WORKLOAD else f"get_inputs_{workload_id}"
        draw: Callable[[], Any] = getattr(self._module, name)
        with seeded(seed), torch.no_grad():
            values = draw()
        return [value.detach() for value in values if isinstance(value, torch.Tensor)]

    def load_weights_into(self, model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
        """Bind ``weights`` (keyed by attribute) to ``model`` without copying them."""
        if self.spec.constructed:  # some of its buffers may be in no state dict
            bind_state(model, weights)
        else:
            model.load_state_dict(weights, strict=True, assign=True)

    def recorded_inputs(self, workload_id: str) -> list[torch.Tensor]:
        """The captured inputs of a workload, with their recorded strides, offsets and aliasing."""
        import torch
        from safetensors import SafetensorError, safe_open

        workload = self.spec.workload(workload_id)
        if workload.inputs and workload.inputs[0].law.kind is LawKind.SOURCE:
            return self.source_inputs(workload_id, INPUT_SEED)
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
        if self.spec.constructed:
            return state_of(self.construct(WEIGHT_SEED))
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

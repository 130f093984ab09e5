"""Write a task folder, load it back from disk, and publish it only if it reproduces the model bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from extractor.execute import Recording
from extractor.health import examine
from extractor.laws import draw_inputs
from extractor.run_folder import make_folder, unwritable, write_json, write_text
from extractor.schema import Health, TaskSpec, Workload
from extractor.task import TASK_INPUTS, TASK_SIDECAR, TASK_SOURCE, Task, file_sha256
from extractor.weights import TASK_WEIGHTS

_HEALTH_SEED = 0  # of the fresh inputs that the health check draws


class NotReproduced(Exception):
    """The task, loaded from disk, does not compute what the model computed. Never reaches a user."""


# What a wrongly written program can raise when it is run; anything else is a bug of ours.
_PROGRAM_ERRORS = (TypeError, ValueError, RuntimeError, AttributeError, NameError, IndexError, AssertionError)


@dataclass(frozen=True)
class Proof:
    """What one site computed in one workload: the recording and the site's real weights by attribute."""

    workload: str
    recording: Recording
    weights: dict[str, torch.Tensor]


def publish(
    tasks_dir: Path,
    spec: TaskSpec,
    source: str,
    proofs: Sequence[Proof],
    copied_weights: dict[str, torch.Tensor],
) -> Task:
    """Write, verify and move into place.

    Args:
        proofs: at least one a workload; the first of each workload becomes its recorded inputs.
        copied_weights: weights to store in the folder, by the model's parameter name.

    Raises:
        NotReproduced: some output differs in any bit, shape, stride or dtype.
        RunUnwritable: the folder cannot be written.
    """
    draft = tasks_dir / f".draft-{spec.task_id}"
    final = tasks_dir / spec.task_id
    make_folder(tasks_dir)
    shutil.rmtree(draft, ignore_errors=True)
    make_folder(draft)
    try:
        task = _write(draft, spec, source, proofs, copied_weights)
        flags = _verify(task, proofs)
        if flags:
            spec = task.spec.model_copy(update={"health": Health(bit_exact=True, flags=flags)})
            write_json(draft / TASK_SIDECAR, spec)
        try:
            if final.exists():
                shutil.rmtree(final)
            draft.rename(final)
        except OSError as error:
            raise unwritable(final, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Task.load(final)


def _write(
    folder: Path,
    spec: TaskSpec,
    source: str,
    proofs: Sequence[Proof],
    copied_weights: dict[str, torch.Tensor],
) -> Task:
    write_text(folder / TASK_SOURCE, source)
    storages: dict[str, torch.Tensor] = {}
    done: set[str] = set()
    for proof in proofs:
        if proof.workload not in done:
            done.add(proof.workload)
            storages |= _storages(spec.workload(proof.workload), proof.recording)
    hashes = {}
    _save(folder / TASK_INPUTS, storages)
    if copied_weights:
        _save(folder / TASK_WEIGHTS, {name: tensor.contiguous() for name, tensor in copied_weights.items()})
        hashes[TASK_WEIGHTS] = file_sha256(folder / TASK_WEIGHTS)
    hashes |= {name: file_sha256(folder / name) for name in (TASK_SOURCE, TASK_INPUTS)}
    write_json(folder / TASK_SIDECAR, spec.model_copy(update={"file_hashes": hashes}))
    return Task.load(folder)


def _save(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    from safetensors import SafetensorError

    try:
        save_file({name: tensor.cpu() for name, tensor in tensors.items()}, str(path))
    except OSError as error:
        raise unwritable(path, error) from error
    except SafetensorError as error:  # its writer wraps a full disk in its own type
        raise unwritable(path, OSError(0, str(error))) from error


def _storages(workload: Workload, recording: Recording) -> dict[str, torch.Tensor]:
    from extractor.task import storage_key

    return {
        storage_key(workload, spec): snapshot.values
        for spec, snapshot in zip(workload.inputs, recording.inputs, strict=True)
    }


@torch.no_grad()
def _verify(task: Task, proofs: Sequence[Proof]) -> tuple[str, ...]:
    """Raise NotReproduced, or return the health flags of the first workload."""
    flags: tuple[str, ...] = ()
    model = task.reference()
    recorded: set[str] = set()
    for proof in proofs:
        device = proof.recording.outputs[0].device
        task.load_weights_into(model, proof.weights)
        if proof.workload in recorded:
            inputs = [snapshot.tensor() for snapshot in proof.recording.inputs]
        else:
            inputs = [
                tensor.to(device) if device.type != "cpu" else tensor
                for tensor in task.recorded_inputs(proof.workload)
            ]
        try:
            outputs = run_model(model, inputs)
        except _PROGRAM_ERRORS as error:
            raise NotReproduced(f"the written program fails: {type(error).__name__}: {error}") from error
        compare(outputs, proof.recording.outputs)
        if not recorded:
            flags = _health(task, proof, model, inputs, outputs)
        recorded.add(proof.workload)
    return flags


def _health(
    task: Task,
    proof: Proof,
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> tuple[str, ...]:
    workload = task.spec.workload(proof.workload)
    generator = torch.Generator().manual_seed(_HEALTH_SEED)
    drawn = draw_inputs(workload, generator, [tensor.cpu() for tensor in inputs])
    fresh = [value.to(tensor.device) for value, tensor in zip(drawn, inputs, strict=True)]
    return examine(model, workload, inputs, outputs, fresh, task.spec.tolerance)


def run_model(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs as a list, one or several."""
    result = model(*inputs)
    return list(result) if isinstance(result, tuple | list) else [result]


def compare(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    """Bit-exact equality of values, shapes, dtypes and strides. Raises NotReproduced naming the first difference."""
    if len(actual) != len(expected):
        raise NotReproduced(f"{len(actual)} outputs instead of {len(expected)}")
    for index, (got, want) in enumerate(zip(actual, expected, strict=True)):
        if got.dtype != want.dtype or got.shape != want.shape:
            raise NotReproduced(
                f"output {index} is {got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}"
            )
        if not _same_bits(got, want):
            worst = (got.double() - want.double()).abs().max().item() if got.numel() else 0.0
            raise NotReproduced(f"output {index} differs, by up to {worst:.3g}")


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))

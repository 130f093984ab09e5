"""Held-out batch sizes: sizes, strides and offsets scaled from two captured batches, or from one."""

from pathlib import Path

import pytest
import torch

from extractor.laws import draw_inputs
from extractor.schema import TensorSpec
from extractor.task import Task
from optimizer.judge.heldout import held_out_workload
from tests.optimizer.fixtures import tasks


def _with_inputs(task: Task, *inputs: TensorSpec | tuple[TensorSpec, TensorSpec]) -> Task:
    pairs = [item if isinstance(item, tuple) else (item, item) for item in inputs]
    decode = [w for w in task.spec.workloads if w.phase == "decode"]
    new = [w.model_copy(update={"inputs": tuple(p[i] for p in pairs)}) for i, w in enumerate(decode)]
    return Task(task.folder, task.spec.model_copy(update={"workloads": tuple(new)}))


def test_two_batches_give_a_third(tmp_path: Path) -> None:
    workload = held_out_workload(tasks.silu_gate(tmp_path, batches=(1, 4)).spec)
    assert workload is not None
    assert (workload.id, workload.batch, workload.rows) == ("held-out-b3", 3, 3)
    assert workload.inputs[0].shape == (3, 1, 256)
    drawn = draw_inputs(workload, torch.Generator().manual_seed(0))
    assert drawn[0].is_contiguous()


def test_strides_offsets_and_broadcasts_are_scaled(tmp_path: Path) -> None:
    def spec(batch: int) -> TensorSpec:
        # [heads, batch, 8], a slice of a [heads, batch, 16] buffer beginning at 8 * batch
        shape, stride = (2, batch, 8), (16 * batch, 16, 1)
        return TensorSpec(name="x", shape=shape, stride=stride, dtype="float32", storage_offset=8 * batch)

    table = TensorSpec(name="t", shape=(2, 5, 8), stride=(8, 0, 1), dtype="float32")
    task = _with_inputs(tasks.silu_gate(tmp_path, batches=(2, 4)), (spec(2), spec(4)), table)
    workload = held_out_workload(task.spec)
    assert workload is not None
    assert (workload.inputs[0].shape, workload.inputs[0].stride) == ((2, 3, 8), (48, 16, 1))
    assert workload.inputs[0].storage_offset == 24
    assert workload.inputs[1] == table


@pytest.mark.parametrize("batch", [1, 4])
def test_one_batch_scales_the_leading_axis(batch: int, tmp_path: Path) -> None:
    workload = held_out_workload(tasks.rmsnorm(tmp_path, batches=(batch,)).spec)
    assert workload is not None
    assert workload.inputs[0].shape == (3, 1, 256)

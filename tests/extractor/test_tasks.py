"""Task folders: what is written, that it is exact, and that a damaged one is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from extractor.families import Family
from extractor.publish import NotReproduced, Proof, publish
from extractor.schema import LawKind, Phase
from extractor.task import CorruptTask, Task, load_tasks
from tests.extractor.conftest import Extracted


def task_of(found: Extracted, family: Family) -> Task:
    return next(task for task in found.tasks if task.spec.family is family)


def outputs_of(task: Task, workload: str, weights: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    model = task.reference()
    task.load_weights_into(model, weights)
    with torch.no_grad():
        result = model(*task.recorded_inputs(workload))
    return result if isinstance(result, tuple) else (result,)


def test_every_operator_became_one_task(qwen3: Extracted) -> None:
    assert qwen3.report.dropped == ()
    families = [task.spec.family.value for task in qwen3.tasks]
    assert sorted(families) == sorted(row.label.split()[1] for row in qwen3.report.rows)
    assert families.count("residual_rmsnorm") == 2  # the last one returns no sum
    assert len(families) == 11


def test_sites_workloads_and_calls(qwen3: Extracted) -> None:
    spec = task_of(qwen3, Family.FFN_GATE_UP).spec
    assert [site.name for site in spec.sites] == ["model.layers.0.mlp", "model.layers.1.mlp"]
    assert spec.sites[1].parameters == {
        "gate_proj.weight": "model.layers.1.mlp.gate_proj.weight",
        "up_proj.weight": "model.layers.1.mlp.up_proj.weight",
    }
    assert [(w.id, w.rows, w.calls) for w in spec.workloads] == [
        ("decode-b2", 2, 2),
        ("prefill-b2-s24", 48, 2),
    ]
    assert spec.sites[0].source.startswith("modeling_")


def test_head_rows_are_the_sliced_ones(qwen3: Extracted) -> None:
    workloads = task_of(qwen3, Family.LM_HEAD).spec.workloads
    assert {w.phase: w.rows for w in workloads} == {Phase.DECODE: 2, Phase.PREFILL: 2}


def test_task_source_is_a_kernelbench_file(qwen3: Extracted) -> None:
    for task in qwen3.tasks:
        imports = [line for line in task.source.splitlines() if line.startswith(("import", "from"))]
        assert all("torch" in line for line in imports)
        namespace: dict[str, object] = {}
        exec(compile(task.source, str(task.folder), "exec"), namespace)
        model = namespace["Model"](*namespace["get_init_inputs"]())  # type: ignore[operator]
        with torch.no_grad():
            result = model(*namespace["get_inputs"]())  # type: ignore[operator]
        first = result[0] if isinstance(result, tuple) else result
        assert tuple(first.shape) == task.spec.workloads[0].outputs[0].shape
        assert set(model.state_dict()) == {weight.attribute for weight in task.spec.weights}


def test_programs_state_no_batch_or_length(qwen3: Extracted) -> None:
    source = task_of(qwen3, Family.ATTENTION_DECODE).source
    assert "key_cache.shape[0]" in source or "getitem.shape[0]" in source
    assert "48" not in source.split("def forward")[1].split("def get_inputs")[0]  # the cache length


def test_recorded_inputs_keep_strides_and_aliases(extracted: Callable[..., Extracted]) -> None:
    found = extracted("qwen3.5-tiny")
    rope = task_of(found, Family.QK_NORM_ROPE)
    workload = rope.spec.workloads[0]
    query = rope.recorded_inputs(workload.id)[0]
    spec = workload.inputs[0]
    assert not query.is_contiguous()
    assert (query.stride(), query.storage_offset()) == (spec.stride, spec.storage_offset)
    aliased = [
        (task, w)
        for task in found.tasks
        for w in task.spec.workloads
        if any(s.alias_group is not None for s in w.inputs)
    ]
    for task, w in aliased:
        tensors = task.recorded_inputs(w.id)
        groups: dict[int, set[int]] = {}
        for tensor, s in zip(tensors, w.inputs, strict=True):
            if s.alias_group is not None:
                groups.setdefault(s.alias_group, set()).add(tensor.untyped_storage().data_ptr())
        assert all(len(pointers) == 1 for pointers in groups.values())


def test_laws(qwen3: Extracted) -> None:
    workloads = {w.phase: w for w in task_of(qwen3, Family.ATTENTION_DECODE).spec.workloads}
    masks = {phase: w.inputs[-1] for phase, w in workloads.items()}
    assert masks[Phase.DECODE].name == "mask"
    assert masks[Phase.DECODE].law.kind is LawKind.PREFIX_MASK
    assert masks[Phase.PREFILL].law.kind is LawKind.CAUSAL_MASK
    rope = task_of(qwen3, Family.QK_NORM_ROPE).spec.workloads[0]
    laws = {spec.name: spec.law for spec in rope.inputs}
    assert laws["cos"].kind is LawKind.ROTARY
    assert laws["cos"].partner == "sin"
    assert laws["query"].kind is LawKind.NORMAL
    norm = task_of(qwen3, Family.RMSNORM).spec.weights[0].law
    assert norm.mean == pytest.approx(1.0, abs=0.1)
    assert norm.std > 0.05  # perturbed: w is not 1


def test_op_records_name_every_value(qwen3: Extracted) -> None:
    for task in qwen3.tasks:
        spec = task.spec
        known = {s.name for s in spec.workloads[0].inputs} | {w.attribute for w in spec.weights}
        for op in spec.ops:
            refs = _refs([op.args, op.kwargs])
            assert refs <= known, (spec.task_id, op)
            known.add(op.name)
        assert set(spec.output_refs) <= known


def _refs(value: object) -> set[str]:
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            return {value["ref"]}
        return set().union(*map(_refs, value.values())) if value else set()
    if isinstance(value, list | tuple):
        return set().union(*map(_refs, value)) if value else set()
    return set()


def test_shares_add_up(qwen3: Extracted) -> None:
    for census in qwen3.report.census:
        assert sum(row.share for row in census.shares) == pytest.approx(1.0)
        assert census.seconds > 0
        assert census.shares[-1].family is None
    decode = [w.share for task in qwen3.tasks for w in task.spec.workloads if w.phase is Phase.DECODE]
    assert 0.5 < sum(share for share in decode if share is not None) < 1.0


def test_weights_by_reference_equal_the_models(qwen3: Extracted) -> None:
    parameters = dict(qwen3.loaded.model.named_parameters())
    for task in qwen3.tasks:
        for index, site in enumerate(task.spec.sites):
            for attribute, tensor in task.weights(index).items():
                assert torch.equal(tensor, parameters[site.parameters[attribute]])


def test_bit_exact_check_catches_a_wrong_program(qwen3: Extracted, tmp_path: Path) -> None:
    """An epsilon that is a little off changes few bits; it must not pass all the same."""
    task = task_of(qwen3, Family.RMSNORM)
    workload = task.spec.workloads[0].id
    proof = _proof(task, workload)
    publish(tmp_path, task.spec, task.source, [proof], {})
    wrong = task.source.replace("1e-06", "1e-03")
    assert wrong != task.source
    with pytest.raises(NotReproduced, match="differs"):
        publish(tmp_path / "wrong", task.spec, wrong, [proof], {})
    assert list((tmp_path / "wrong").iterdir()) == []  # nothing is left behind
    broken = task.source.replace("torch.rsqrt", "torch.no_such_function")
    with pytest.raises(NotReproduced, match="AttributeError"):
        publish(tmp_path / "wrong", task.spec, broken, [proof], {})


def _proof(task: Task, workload: str) -> Proof:
    from extractor.execute import Recording, Snapshot

    weights = task.weights()
    inputs = [
        Snapshot(tuple(t.shape), t.stride(), int(t.storage_offset()), index, t.reshape(-1).clone())
        for index, t in enumerate(task.recorded_inputs(workload))
    ]
    return Proof(workload, Recording(inputs, list(outputs_of(task, workload, weights))), weights)


@pytest.fixture
def a_task(qwen3: Extracted, tmp_path: Path) -> Path:
    source = task_of(qwen3, Family.SILU_GATE).folder
    return Path(shutil.copytree(source, tmp_path / source.name))


def test_a_sound_copy_loads(a_task: Path) -> None:
    assert Task.load(a_task).spec.family is Family.SILU_GATE
    assert [task.id for task in load_tasks(a_task.parent)] == [a_task.name]


def test_drafts_of_a_killed_extraction_are_ignored(a_task: Path) -> None:
    shutil.copytree(a_task, a_task.parent / f".draft-{a_task.name}")
    assert [task.folder for task in load_tasks(a_task.parent)] == [a_task]


def test_a_task_without_its_sidecar_is_damaged_not_absent(a_task: Path) -> None:
    (a_task / "task.json").unlink()
    with pytest.raises(CorruptTask, match=r"task\.json cannot be read"):
        load_tasks(a_task.parent)


def test_changed_source_is_refused(a_task: Path) -> None:
    source = a_task / "task.py"
    source.write_text(source.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(CorruptTask, match=r"task\.py was changed"):
        Task.load(a_task)


def test_truncated_inputs_are_refused(a_task: Path) -> None:
    inputs = a_task / "inputs.safetensors"
    inputs.write_bytes(inputs.read_bytes()[:-7])
    with pytest.raises(CorruptTask, match="inputs"):
        Task.load(a_task)


def test_missing_file_is_refused(a_task: Path) -> None:
    (a_task / "task.py").unlink()
    with pytest.raises(CorruptTask, match="cannot be read"):
        Task.load(a_task)


def test_a_sidecar_that_is_no_json_is_refused(a_task: Path) -> None:
    (a_task / "task.json").write_text('{"schema_version": 1, "fam', encoding="utf-8")
    with pytest.raises(CorruptTask, match="invalid"):
        Task.load(a_task)


def test_another_schema_version_is_refused(a_task: Path) -> None:
    sidecar = a_task / "task.json"
    data = json.loads(sidecar.read_text(encoding="utf-8"))
    sidecar.write_text(json.dumps(data | {"schema_version": 99}), encoding="utf-8")
    with pytest.raises(CorruptTask, match="schema version 99"):
        Task.load(a_task)


def _edited(folder: Path, path: str, value: object) -> None:
    """One value of ``task.json``, by its dotted path, replaced."""
    sidecar = folder / "task.json"
    document = json.loads(sidecar.read_text())
    *home, last = (int(part) if part.isdigit() else part for part in path.split("."))
    inner = document
    for part in home:
        inner = inner[part]
    inner[last] = value
    sidecar.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("workloads.0.inputs.0.stride.0", -1, "workloads.0.inputs.0.stride.0"),
        ("workloads.0.inputs.0.stride.0", 10**30, "workloads.0.inputs.0.stride.0"),
        ("workloads.0.inputs.0.shape.0", -1, "workloads.0.inputs.0.shape.0"),
        ("workloads.0.inputs.0.shape", [1 << 40, 1 << 40, 1], "reaches over more than"),
        ("workloads.0.inputs.0.shape", [], "0 sizes and 3 strides"),
        ("workloads.0.outputs.0.stride", [], "sizes and 0 strides"),
        ("workloads.0.inputs.0.storage_offset", -8, "storage_offset"),
        ("workloads.0.inputs.0.dtype", "../../etc", "unknown dtype '../../etc'"),
        ("workloads.0.outputs.0.dtype", "", "unknown dtype ''"),
        ("workloads.0.calls", -1, "workloads.0.calls"),
        ("workloads.0.rows", 10**30, "workloads.0.rows"),
        ("workloads", [], "workloads"),
    ],
)
def test_a_sidecar_that_describes_no_tensor_is_refused(
    a_task: Path, path: str, value: object, sentence: str
) -> None:
    _edited(a_task, path, value)
    with pytest.raises(CorruptTask, match=re.escape(sentence)):
        Task.load(a_task)


def test_workloads_of_one_name_are_refused(a_task: Path) -> None:
    workloads = json.loads((a_task / "task.json").read_text())["workloads"]
    _edited(a_task, "workloads", [workloads[0], workloads[0]])
    with pytest.raises(CorruptTask, match="two workloads have the same id"):
        Task.load(a_task)


def test_fp32_tasks_are_exact_too(extracted: Callable[..., Extracted]) -> None:
    found = extracted("qwen3-tiny", "float32")
    assert found.report.dropped == ()
    assert {task.spec.dtype for task in found.tasks} == {"float32"}


def test_families_can_be_chosen(qwen3: Extracted, a_run) -> None:
    from extractor.extract import extract

    report = extract(qwen3.loaded, a_run, batches=(1,), prompt=8, tokens=8, families=[Family.SILU_GATE])
    assert [row.label for row in report.rows] == ["G silu_gate"]
    assert len(report.census[0].shares) > 5  # the census still covers the whole step
    assert a_run.census_path.is_file()

"""KernelBench files become tasks whose own code draws inputs and weights; what cannot be judged is refused clearly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from extractor.kernelbench import NotKernelBench, import_kernelbench, workload_functions
from extractor.schema import LawKind
from extractor.task import Task

WHOLE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, shape):
        super().__init__()
        self.linear = nn.Linear(width, shape[0])
        self.register_buffer("shift", torch.randn(shape[0]), persistent=False)
        self.derived = self.linear.weight.t() * 2

    def forward(self, x, factor, y):
        return self.linear(x) + self.shift * factor, [y.sum(), y.numel()], x @ self.derived

def get_inputs():
    torch.manual_seed(3)
    base = torch.randn(4, 32)
    return [base[:, 4:20], 2.5, base[:, 16:]]

def get_inputs_odd():
    base = torch.randn(7, 1, 16)
    return [base[:, 0], 2.5, torch.randn(1).expand(7, 16)]

def get_init_inputs():
    return [16, (8, 2)]
"""
SMALL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        {body}
def get_inputs():
    {inputs}
def get_init_inputs():
    return {init}
"""


def small(body: str = "return x + 1", inputs: str = "return [torch.randn(4)]", init: str = "[]") -> str:
    return SMALL.format(body=body, inputs=inputs, init=init)


def imported(text: str, folder: Path) -> Task:
    source = folder / "problem.py"
    source.write_text(text, encoding="utf-8")
    return import_kernelbench(source, folder / "tasks")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return imported(WHOLE, tmp_path_factory.mktemp("import"))


def test_a_file_becomes_a_task_folder_that_loads_again(whole: Task) -> None:
    again = Task.load(whole.folder)
    assert again.spec == whole.spec
    assert whole.folder.name == whole.id == f"imported-{whole.spec.op_key[:10]}"
    assert whole.source == WHOLE
    assert [w.id for w in whole.spec.workloads] == ["default", "odd"]
    assert whole.spec.constructed
    assert whole.spec.init == (16, [8, 2])
    assert again.spec.constants == {1: 2.5}


def test_strides_offsets_and_aliasing_are_recorded(whole: Task) -> None:
    x, y = whole.spec.workload("default").inputs
    assert (x.name, y.name) == ("x", "y")
    assert (x.shape, x.stride, x.storage_offset) == ((4, 16), (32, 1), 4)
    assert y.storage_offset == 16
    assert x.alias_group == y.alias_group == 0
    odd_x, odd_y = whole.spec.workload("odd").inputs
    assert odd_x.alias_group is None
    assert odd_y.stride == (0, 0)
    assert {spec.law.kind for w in whole.spec.workloads for spec in w.inputs} == {LawKind.SOURCE}


def test_inputs_follow_the_seed_although_the_file_seeds_itself(whole: Task) -> None:
    state = torch.get_rng_state()
    first, again, other = (whole.source_inputs("default", seed) for seed in (7, 7, 8))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert torch.equal(torch.get_rng_state(), state), (
        "drawing inputs must not disturb anybody's random numbers"
    )
    for tensor, spec in zip(first, whole.spec.workload("default").inputs, strict=True):
        assert (tuple(tensor.shape), tensor.stride()) == (spec.shape, spec.stride)
    assert torch.equal(whole.recorded_inputs("odd")[0], whole.recorded_inputs("odd")[0])


def test_weights_are_what_the_constructor_draws(whole: Task) -> None:
    assert [spec.attribute for spec in whole.spec.weights] == ["linear.weight", "linear.bias", "shift"]
    model, other = whole.construct(5), whole.construct(6)
    assert torch.equal(model.derived, model.linear.weight.t() * 2)
    assert not torch.equal(model.linear.weight, other.linear.weight)
    assert not model.training
    assert not model.linear.weight.requires_grad
    recorded = whole.weights()
    assert torch.equal(recorded["shift"], whole.reference().shift)
    whole.load_weights_into(model, recorded)
    assert model.linear.weight.data_ptr() == recorded["linear.weight"].data_ptr()
    assert model.shift is recorded["shift"]


def test_constants_are_bound_and_nested_results_are_flat(whole: Task) -> None:
    model, (x, y) = whole.construct(5), whole.source_inputs("default", 1)
    result = model(x, y)
    assert torch.equal(result[0], model.linear(x) + model.shift * 2.5)
    outputs = whole.spec.workload("default").outputs
    assert [(spec.shape, spec.dtype) for spec in outputs] == [
        ((4, 8), "float32"),
        ((), "float32"),
        ((), "int64"),
        ((4, 8), "float32"),
    ]


def test_importing_again_replaces_the_folder(tmp_path: Path) -> None:
    first = imported(small(), tmp_path)
    second = imported(small(), tmp_path)
    assert first.folder == second.folder
    assert [path.name for path in (tmp_path / "tasks").iterdir()] == [first.id]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def (", "it does not parse (line 1: "),
        ("x = 1", "it does not define Model, get_inputs, get_init_inputs"),
        ("import torch\n\nraise OSError('gone')", "running the file raised OSError at line 3: gone"),
        (small().replace("torch.nn.Module", "object"), "Model is no subclass of torch.nn.Module"),
        (small(body="return x + torch.ones(3)"), "forward raised RuntimeError at line 5"),
        (small(inputs="return torch.randn(4)"), "get_inputs() returns Tensor instead of a list"),
        (small(inputs="return [{'x': 1}]"), "get_inputs()[0] is of type dict; tensors, and numbers"),
        (small(inputs="return [2]"), "get_inputs() returns no tensor"),
        (small(inputs="return [torch.rand(1).expand(1 << 25, 1 << 25)]"), "returns tensors of 4194304 GiB"),
        (small(inputs="return [torch.randn(4).to_sparse()]"), "layout torch.sparse_coo"),
        (small(inputs="return [torch.randn(4) + 1j]"), "dtype complex64"),
        (small(inputs="return [torch.randn(int(torch.randint(1, 99, ())))]"), "returns other shapes"),
        (small(inputs="import os; return [torch.tensor(list(os.urandom(8)))]"), "does not fix"),
        (small(body="return x.add_(1)"), "changes its inputs in place"),
        (small(body="return {'y': x}"), "dict among the outputs"),
        (small(init="[torch.ones(2)]"), "get_init_inputs()[0] is of type Tensor"),
        (small(init="[1]"), "Model(*get_init_inputs()) raised TypeError"),
        (small() + "def get_inputs_two():\n    return [torch.ones(1), 2]\n", "passes other constants"),
        (small() + "def get_inputs_two():\n    return [torch.ones(1)] * 2\n", "has 2 tensors, get_inputs() has 1"),
        (small() + "def get_inputs_default():\n    return []\n", "the name of the workload"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_refused_in_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(NotKernelBench) as caught:
        imported(text, tmp_path)
    assert sentence in str(caught.value)
    assert "problem.py cannot be imported as a KernelBench task: " in str(caught.value)
    assert not (tmp_path / "tasks").exists()


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotKernelBench, match="cannot be read"):
        import_kernelbench(tmp_path / "missing.py", tmp_path)


def test_recorded_tasks_are_not_constructed(qwen3) -> None:
    task = qwen3.tasks[0]
    with pytest.raises(ValueError, match="recorded"):
        task.construct(1)
    with pytest.raises(ValueError, match="recorded laws"):
        task.source_inputs(task.spec.workloads[0].id, 1)


def test_workloads_are_the_functions_of_the_module() -> None:
    text = "def get_inputs_b(): ...\nclass A:\n    def get_inputs_c(self): ...\ndef get_inputs(): ..."
    assert workload_functions(text) == {"default": "get_inputs", "b": "get_inputs_b"}

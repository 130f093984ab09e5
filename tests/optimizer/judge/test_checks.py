"""The checker against a stand-in for a worker: an eager model in this process that errs in one way at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import torch

from extractor.kernelbench import import_kernelbench
from optimizer.judge.checks import Checker, Deadline, unwritten
from optimizer.judge.draws import copy_into
from optimizer.judge.oracle import eager_outputs
from optimizer.judge.pristine import Pristine
from optimizer.judge.remote import CandidateFault, Run
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subjects
from optimizer.judge.verdict import Outcome, WorkloadResult
from optimizer.languages.abi import OK
from optimizer.machine import machine_facts

_SOURCE = """import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = torch.nn.Linear(width, width)
        self.table = self.proj.weight.detach().t().contiguous()  # derived, and no buffer
        self.register_buffer("steps", torch.tensor(3), persistent=False)

    def forward(self, x, factor, keep):
        y = self.proj(x) + x @ self.table
        y = y * factor + self.steps
        return y, [(y > 0) & keep, y.argmax(-1)], y.sum(), 4


def get_inputs():
    return [torch.randn(6, 48)[:, 1:33], 2.0, torch.randint(0, 2, (6, 1), dtype=torch.bool).expand(6, 32)]


def get_inputs_one():
    return [torch.randn(33)[1:].view(1, 32), 2.0, torch.ones(1, 32, dtype=torch.bool)]


def get_inputs_none():
    return [torch.randn(0, 32), 2.0, torch.ones(0, 32, dtype=torch.bool)]


def get_init_inputs():
    return [32]
"""


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subjects]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("checks")
    (folder / "kb.py").write_text(_SOURCE)
    task = import_kernelbench(folder / "kb.py", folder / "out")
    opened = Subjects(task, JudgeSettings(timing=False, seed=11), machine_facts())
    yield opened
    opened.close()


@dataclass
class _Candidate:
    """Answers from an eager model of its own; ``spoil`` may change the outputs of its ``call``-th call."""

    subjects: Subjects
    spoil: Callable[[int, list[torch.Tensor]], None] = lambda _call, _outputs: None
    repack: bool = True
    pid: int = 0
    control: int = 0
    calls: int = 0
    model: torch.nn.Module = field(default_factory=torch.nn.Module)

    def pack(self, copy: int, limit_s: float, *, changed: bool = False) -> None:
        if self.calls and not self.repack:
            return
        seed = self.subjects.seeds[-1 if changed else copy]
        self.model = self.subjects.task.construct(seed)

    def run(self, region: int, first: int, count: int, limit_s: float, doing: str) -> Run:
        subject = self.subjects.subjects[region // 2]
        for slot in range(first, first + count):
            inputs = self.subjects.inputs.slot(subject.inputs.check, slot)
            outputs = [output.clone() for output in eager_outputs(self.model, inputs)]
            self.spoil(self.calls, outputs)
            self.calls += 1
            copy_into(self.subjects.outputs.slot(subject.outputs.check, slot), outputs)
        return Run(OK, 0, 0, 0, 0, "")

    def threads(self) -> int:
        return 1

    def pin(self, core: int) -> None:
        pass


def _check(subjects: Subjects, candidate: _Candidate) -> tuple[WorkloadResult, ...]:
    settings = JudgeSettings(timing=False)
    return Checker(subjects, settings, candidate, Deadline(60.0)).run()


def _fault(subjects: Subjects, candidate: _Candidate) -> str:
    with pytest.raises(CandidateFault) as caught:
        _check(subjects, candidate)
    assert caught.value.outcome is Outcome.WRONG
    return caught.value.reason


def test_the_reference_itself_passes_with_all_kinds_of_outputs(subjects: Subjects) -> None:
    results = _check(subjects, _Candidate(subjects))
    assert [result.workload for result in results] == ["default", "one", "none"]
    assert all(result.error is not None and result.error < 2 for result in results)
    outputs = subjects.subjects[0].workload.outputs
    assert [spec.dtype for spec in outputs] == ["float32", "bool", "int64", "float32", "int64"]
    assert [len(spec.shape) for spec in outputs] == [2, 2, 1, 0, 0]


def test_inputs_keep_strides_offsets_and_broadcasts(subjects: Subjects) -> None:
    x, keep = subjects.inputs.slot(subjects.subjects[0].inputs.check, 0)
    assert x.stride() == (48, 1)
    assert x.data_ptr() % 16 == 4
    assert keep.stride() == (1, 0)


def test_a_model_constructed_once_fails_under_the_changed_weights_or_after_them(subjects: Subjects) -> None:
    reason = _fault(subjects, _Candidate(subjects, repack=False))
    assert "after they changed: a private copy, cache or packing of the weights is stale" in reason


def test_what_is_wrong_under_any_weights_is_said_without_them(subjects: Subjects) -> None:
    reason = _fault(subjects, _Candidate(subjects, lambda _call, outputs: outputs[0].add_(1.0)))
    assert reason.startswith("workload default, output 0: ")
    assert "weights" not in reason


def test_what_is_wrong_with_changed_weights_only_is_stale(subjects: Subjects) -> None:
    def spoil(call: int, outputs: list[torch.Tensor]) -> None:
        if call == 0:
            outputs[0].add_(1.0)

    reason = _fault(subjects, _Candidate(subjects, spoil))
    assert "with changed weights only" in reason
    assert "is stale" in reason


def test_a_later_wrong_trial_is_no_stale_weight(subjects: Subjects) -> None:
    def spoil(call: int, outputs: list[torch.Tensor]) -> None:
        if call == len(subjects.subjects):  # the first trial under the task's own weights
            outputs[0].add_(1.0)

    assert "stale" not in _fault(subjects, _Candidate(subjects, spoil))


def test_seeds_make_the_weights_and_the_last_one_the_changed_ones(subjects: Subjects) -> None:
    assert len(subjects.seeds) == subjects.copies + 1 == len(set(subjects.seeds))
    task, region = subjects.task, subjects.weight_region
    for copy in (0, subjects.copies - 1):
        lies = subjects.weights.slot(region, copy)[0]
        assert torch.equal(lies, task.construct(subjects.seeds[copy]).get_parameter("proj.weight"))
    with subjects.changed_weights():
        changed = subjects.weights.slot(region, 0)[0].clone()
    assert torch.equal(changed, task.construct(subjects.seeds[-1]).get_parameter("proj.weight"))
    assert not torch.equal(changed, subjects.weights.slot(region, 0)[0])


def test_a_result_that_depends_on_the_repetition_is_wrong(subjects: Subjects) -> None:
    trials = subjects.subjects[0].trials
    changed = len(subjects.subjects)
    first_repetition = changed + trials - 1

    def spoil(call: int, outputs: list[torch.Tensor]) -> None:
        if call == first_repetition + 1:
            outputs[0][4, 7] += 0.5

    reason = _fault(subjects, _Candidate(subjects, spoil))
    assert "depends on the repetition" in reason
    assert "[4, 7]" in reason


def test_another_rounding_in_a_repetition_is_allowed(subjects: Subjects) -> None:
    def spoil(call: int, outputs: list[torch.Tensor]) -> None:
        outputs[0].mul_(1 + 1e-7 * (call % 3))

    _check(subjects, _Candidate(subjects, spoil))


@pytest.mark.parametrize(("number", "text"), [(1, "differ"), (2, "differ"), (3, "error"), (4, "differ")])
def test_every_output_is_looked_at(subjects: Subjects, number: int, text: str) -> None:
    def spoil(call: int, outputs: list[torch.Tensor]) -> None:
        wrong = outputs[number]
        outputs[number] = ~wrong if wrong.dtype == torch.bool else wrong + 1

    reason = _fault(subjects, _Candidate(subjects, spoil))
    assert f"output {number}" in reason
    assert text in reason


@pytest.mark.parametrize("kind", ["inputs", "weights"])
def test_what_is_not_sealed_is_compared_and_put_back(
    subjects: Subjects, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where every process that sees memory can write it."""
    arenas = {"inputs": subjects.inputs, "weights": subjects.weights}
    monkeypatch.setattr(subjects, "guards", {name: Pristine(arena.bytes) for name, arena in arenas.items()})
    before = arenas[kind].bytes.clone()
    _check(subjects, _Candidate(subjects))

    def spoil(call: int, outputs: list[torch.Tensor]) -> None:
        if call == 4:
            arenas[kind].bytes[subjects.inputs.size // 2 if kind == "inputs" else 5000] ^= 1

    assert f"it writes to its {kind}" in _fault(subjects, _Candidate(subjects, spoil))
    assert torch.equal(arenas[kind].bytes, before)
    _check(subjects, _Candidate(subjects))


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.float64, torch.int16, torch.uint8]
)
def test_what_was_never_written_is_counted(dtype: torch.dtype) -> None:
    tensor = torch.zeros(4, 6, dtype=torch.float32).to(dtype)
    assert unwritten(tensor, "fine") == "fine"
    tensor.view(torch.uint8)[2, -tensor.element_size() :] = 0xFF
    assert unwritten(tensor, "fine") == "1 of 24 elements were never written (first at [2, 5])"


def test_a_computed_nan_is_no_unwritten_element() -> None:
    assert unwritten(torch.tensor([1.0, float("nan")]), "wrong") == "wrong"


def test_pristine_memory() -> None:
    for size in (64, 13):
        memory = torch.arange(size, dtype=torch.uint8)
        pristine = Pristine(memory)
        assert pristine.intact()
        memory[-1] ^= 128
        assert not pristine.intact()
        pristine.restore()
        assert pristine.intact()
        memory[0] = 9
        pristine.renew()
        assert pristine.intact()

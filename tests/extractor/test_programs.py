"""Programs written from one shape set must compute every other one, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from extractor.emit import write_program, write_task_source
from extractor.execute import parameter_values, record
from extractor.expressions import Unwritable, function_name
from extractor.keys import dtype_name
from extractor.measure import measure_weight
from extractor.publish import compare, run_model
from extractor.schema import WeightSpec
from extractor.shapes import Variant
from tests.extractor.conftest import Captured


# Batch 3 and cache length 48 equal group sizes and latent sizes of the mixture of experts: constants must stay so.
@pytest.mark.parametrize("written", ["from batch 1", "from batch 3"])
@pytest.mark.parametrize("name", ["qwen3-tiny", "qwen3.5-tiny", "deepseek-v3-tiny"])
def test_a_program_serves_other_batches_and_lengths(
    name: str, written: str, captured: Callable[..., Captured]
) -> None:
    one, three = captured(name), captured(name, batch=3, prompt=20, cache_len=48)
    source, target = (one, three) if written == "from batch 1" else (three, one)
    wanted = list(target.detection.regions)
    recordings = record(target.step, target.binding, wanted)
    values = parameter_values(target.step, target.binding)
    for region, other, recording in zip(source.detection.regions, wanted, recordings, strict=True):
        program = write_program([Variant(region, source.step.dims)])
        weights = {
            attribute: values[parameter]
            for attribute, parameter in zip(region.weights, other.parameters.values(), strict=True)
        }
        model = build(program, weights)
        with torch.no_grad():
            outputs = run_model(model, [snapshot.tensor() for snapshot in recording.inputs])
        compare(outputs, recording.outputs)


def build(program, weights: dict[str, torch.Tensor]) -> torch.nn.Module:
    specs = [
        WeightSpec(attribute=a, shape=tuple(w.shape), dtype=dtype_name(w.dtype), law=measure_weight(w))
        for a, w in weights.items()
    ]
    text = write_task_source(program, title="a task", notes=(), weights=specs, inputs=())
    namespace: dict[str, type[torch.nn.Module]] = {}
    exec(compile(text, "task.py", "exec"), namespace)
    model = namespace["Model"]().requires_grad_(False)
    model.load_state_dict(weights, assign=True)
    return model


def test_only_torch_functions_are_written() -> None:
    assert function_name(torch.nn.functional.silu) == "F.silu"
    assert function_name(torch.rsqrt) == "torch.rsqrt"
    with pytest.raises(Unwritable, match="not part of torch"):
        function_name(dtype_name)


def test_docstrings_cannot_be_escaped(captured: Callable[..., Captured]) -> None:
    found = captured("qwen3-tiny")
    program = write_program([Variant(found.detection.regions[0], found.step.dims)])
    title = 'evil """ + __import__("os").system("true") + r"""\\'
    text = write_task_source(program, title=title, notes=['"""'], weights=(), inputs=())
    compile(text, "task.py", "exec")
    assert text.count('"""') == 2

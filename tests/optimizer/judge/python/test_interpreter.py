"""The repaired interpreter: rounding as the hardware does it, bounds, races."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton.language as tl

from optimizer.judge.python.bounds import Launch, OutOfBounds
from optimizer.judge.python.interpreter import narrow, to_tf32, widen
from optimizer.judge.python.launches import describe_launch

FIRST = (0, 0, 0)


def test_bfloat16_is_rounded_as_torch_does() -> None:
    special = [0.0, -0.0, float("inf"), float("-inf"), 3.4e38, 1e-40, 1.00390625, 1.01171875]
    values = np.concatenate(
        [np.array(special, np.float32), np.random.default_rng(3).normal(size=5000).astype(np.float32)]
    )
    expected = torch.from_numpy(values).to(torch.bfloat16)
    assert np.array_equal(narrow(values), expected.view(torch.int16).numpy().view(np.uint16))
    assert np.array_equal(widen(narrow(values)), expected.float().numpy())


def test_operations_on_small_floats_are_bit_equal_to_torch() -> None:
    """In a process of its own: whether kernels are interpreted is decided when Triton is imported."""
    here = Path(__file__)
    command = [sys.executable, str(here.with_name("interpreted.py")), str(here.parents[4])]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.stdout == "equal\n", answer.stderr


def test_nan_stays_nan() -> None:
    payload = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], dtype=np.uint32).view(np.float32)
    assert np.isnan(widen(narrow(payload))).all()
    assert np.isnan(to_tf32(payload)).all()


def test_tf32_keeps_ten_bits() -> None:
    values = np.random.default_rng(4).normal(size=1000).astype(np.float32)
    rounded = to_tf32(values)
    assert (np.abs(rounded - values) <= np.abs(values) * 2.0**-11).all()
    assert (rounded.view(np.uint32) & 0x1FFF == 0).all()


def pointers(tensor: torch.Tensor, *elements: int) -> SimpleNamespace:
    """An interpreter handle on elements of a float32 tensor."""
    addresses = np.array([tensor.data_ptr() + 4 * element for element in elements], dtype=np.uint64)
    return SimpleNamespace(data=addresses, get_element_ty=lambda: tl.float32)


def test_elements_of_given_tensors_may_be_touched() -> None:
    one, two = torch.zeros(4), torch.zeros(4)
    with Launch("kernel", [one, two]) as launch:
        both = pointers(one, 0, 3)
        both.data = np.concatenate([both.data, pointers(two, 1).data])
        launch.loads(both, np.ones(3, dtype=bool), FIRST)
        launch.stores(pointers(one, 3, 400), np.zeros(2, np.float32), np.array([True, False]), FIRST)


@pytest.mark.parametrize("element", [-1, 4, 1 << 20])
def test_others_may_not(element: int) -> None:
    tensor = torch.zeros(4)
    with (
        Launch("kernel", [tensor]) as launch,
        pytest.raises(
            OutOfBounds, match=f"kernel reads 4 bytes at byte offset {4 * element} of a tensor of 16"
        ),
    ):
        launch.loads(pointers(tensor, 0, element), np.ones(2, dtype=bool), FIRST)


def test_a_view_reaches_its_whole_storage() -> None:
    whole = torch.zeros(8)
    with Launch("kernel", [whole[2:4]]) as launch:
        launch.loads(pointers(whole, 0, 7), np.ones(2, dtype=bool), FIRST)


def test_a_launch_is_described_by_what_it_is_compiled_for() -> None:
    def kernel(x, count, scale, none, BLOCK: tl.constexpr, KIND: tl.constexpr):  # noqa: N803
        pass

    kernel.__annotations__ = {"BLOCK": tl.constexpr, "KIND": tl.constexpr}
    options = {"BLOCK": 64, "KIND": tl.float16, "num_warps": 8, "unknown": 1}
    record = describe_launch(kernel, (torch.zeros(2, dtype=torch.bfloat16), 1 << 40, 0.5, None), options)
    types = ("x", "*bf16"), ("count", "i64"), ("scale", "fp32")
    assert record["signature"] == dict(types) | dict.fromkeys(("none", "BLOCK", "KIND"), "constexpr")
    assert record["constants"] == {"none": None, "BLOCK": 64, "KIND": {"dtype": "fp16"}}
    assert record["options"] == {"num_warps": 8}
    assert "problem" in describe_launch(kernel, (object(),), options)


def test_a_tuple_is_described_by_its_elements() -> None:
    def kernel(x, both):  # type: ignore[no-untyped-def]
        pass

    record = describe_launch(kernel, (torch.zeros(2), (3, (None, 0.5))), {})
    assert record["signature"] == {"x": "*fp32", "both": ["i32", ["constexpr", "fp32"]]}
    assert record["nested"] == [[[1, 1, 0], None]]

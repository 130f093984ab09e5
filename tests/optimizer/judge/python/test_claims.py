"""What a forward returned against what the task returns."""

from __future__ import annotations

import pytest
import torch

from optimizer.judge.python.claims import NotWhatItReturns, check_apart, check_outputs, flatten

EXPECTED = [((2, 3), (3, 1), "float32", 0), ((), (), "int64", 64)]


class Lazy(torch.Tensor):
    pass


def test_nested_results_are_flattened_in_order() -> None:
    one, two = torch.zeros(2, 3), torch.ones(1)
    flat = flatten([one, (two, [3])])
    assert flat[0].data_ptr() == one.data_ptr()
    assert flat[1].data_ptr() == two.data_ptr()
    assert flat[2].item() == 3


@pytest.mark.parametrize(
    ("result", "phrase"),
    [
        (torch.zeros(2).as_subclass(Lazy), "Lazy"),
        (torch.zeros(2, 2).to_sparse(), "not a dense tensor"),
        ({"out": torch.zeros(2)}, "dict among the outputs"),
        (None, "NoneType among the outputs"),
    ],
)
def test_other_things_are_no_outputs(result: object, phrase: str) -> None:
    with pytest.raises(NotWhatItReturns, match=phrase):
        flatten(result)


def test_expected_outputs_pass_with_any_strides() -> None:
    check_outputs([torch.zeros(3, 2).t(), torch.tensor(4)], EXPECTED, "cpu")


@pytest.mark.parametrize(
    ("outputs", "phrase"),
    [
        ([torch.zeros(2, 3)], "returned 1 outputs; the task returns 2"),
        ([torch.zeros(3, 2), torch.tensor(4)], r"output 0 has shape \(3, 2\)"),
        ([torch.zeros(2, 3), torch.tensor(4.0)], "output 1 has dtype float32"),
        ([torch.zeros(2, 3, device="meta"), torch.tensor(4)], "output 0 is on meta"),
    ],
)
def test_other_outputs_do_not(outputs: list[torch.Tensor], phrase: str) -> None:
    with pytest.raises(NotWhatItReturns, match=phrase):
        check_outputs(outputs, EXPECTED, "cpu")


def test_calls_must_not_share_memory() -> None:
    kept = torch.zeros(4)
    check_apart([[torch.zeros(4), torch.zeros(0)], [torch.zeros(4), torch.zeros(0)]])
    check_apart([[kept, kept]])  # one call may return one tensor twice
    with pytest.raises(NotWhatItReturns, match="earlier call"):
        check_apart([[kept], [kept]])

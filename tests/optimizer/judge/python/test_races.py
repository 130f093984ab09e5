"""Programs of a launch share elements in order, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton.language as tl

from optimizer.judge.python.bounds import Launch
from optimizer.judge.python.races import DataRace, contradicts
from optimizer.judge.python.undefined import undefined

FIRST, SECOND, THIRD = (0, 0, 0), (1, 0, 0), (2, 0, 0)


class Programs:
    """A launch on ``data`` (eight fp32) and ``flags`` (eight int32), in the words of this page."""

    def __init__(self) -> None:
        self.data, self.flags = torch.zeros(8), torch.zeros(8, dtype=torch.int32)
        self.launch = Launch("kernel", [self.data, self.flags])

    def read(self, program: tuple[int, int, int], element: int) -> None:
        self.launch.loads(_at(self.data, element), np.ones(1, dtype=bool), program)

    def write(self, program: tuple[int, int, int], element: int, value: float) -> None:
        values = np.array([value], dtype=np.float32)
        self.launch.stores(_at(self.data, element), values, np.ones(1, dtype=bool), program)
        self.data[element] = value

    def signal(self, program: tuple[int, int, int], flag: int) -> None:
        self.launch.updates(_at(self.flags, flag), None, program, relaxed=False)

    def wait(self, program: tuple[int, int, int], flag: int, *, relaxed: bool = False) -> None:
        self.launch.updates(_at(self.flags, flag), None, program, relaxed=relaxed)()


def _at(tensor: torch.Tensor, element: int) -> SimpleNamespace:
    kind = tl.float32 if tensor.dtype == torch.float32 else tl.int32
    address = np.array([tensor.data_ptr() + 4 * element], dtype=np.uint64)
    return SimpleNamespace(data=address, get_element_ty=lambda: kind)


@pytest.fixture
def programs() -> Iterator[Programs]:
    made = Programs()
    with made.launch:
        yield made


def test_elements_of_its_own_may_be_read_and_written(programs: Programs) -> None:
    for value, program in enumerate((FIRST, SECOND, THIRD)):
        programs.read(program, value)
        programs.write(program, value, 1.0)
        programs.write(program, value, 2.0)
        programs.read(program, value)
        programs.read(program, 7)


def test_read_after_write(programs: Programs) -> None:
    programs.write(FIRST, 2, 1.0)
    with pytest.raises(DataRace, match=r"kernel kernel: program \(1, 0, 0\) reads what another"):
        programs.read(SECOND, 2)


def test_write_after_write_of_something_else(programs: Programs) -> None:
    programs.write(FIRST, 2, 1.0)
    programs.write(SECOND, 2, 1.0)
    with pytest.raises(DataRace, match="changes what another"):
        programs.write(THIRD, 2, 3.0)


@pytest.mark.parametrize("reads_it_too", [False, True])
def test_write_after_read(programs: Programs, reads_it_too: bool) -> None:
    programs.read(FIRST, 2)
    if reads_it_too:
        programs.read(SECOND, 2)
    with pytest.raises(DataRace, match="changes what another"):
        programs.write(SECOND, 2, 1.0)


def test_an_atomic_after_the_write_and_one_before_the_read_put_them_in_order(programs: Programs) -> None:
    programs.write(FIRST, 2, 1.0)
    programs.signal(FIRST, 0)
    programs.wait(SECOND, 0)
    programs.read(SECOND, 2)
    programs.write(SECOND, 2, 2.0)


def test_order_goes_on_through_other_programs_and_words(programs: Programs) -> None:
    programs.write(FIRST, 2, 1.0)
    programs.signal(FIRST, 0)
    programs.wait(SECOND, 0)
    programs.signal(SECOND, 1)
    programs.wait(THIRD, 1)
    programs.read(THIRD, 2)


def test_an_atomic_before_the_write_is_too_early(programs: Programs) -> None:
    programs.signal(FIRST, 0)
    programs.write(FIRST, 2, 1.0)
    programs.wait(SECOND, 0)
    with pytest.raises(DataRace):
        programs.read(SECOND, 2)


@pytest.mark.parametrize("how", ["another word", "nobody looks", "relaxed"])
def test_atomics_that_put_nothing_in_order(programs: Programs, how: str) -> None:
    programs.write(FIRST, 2, 1.0)
    programs.signal(FIRST, 0)
    if how == "nobody looks":
        programs.signal(SECOND, 0)
    else:
        programs.wait(SECOND, 1 if how == "another word" else 0, relaxed=how == "relaxed")
    with pytest.raises(DataRace):
        programs.read(SECOND, 2)


def test_plain_and_atomic_writes_do_not_mix(programs: Programs) -> None:
    programs.launch.updates(_at(programs.data, 1), None, FIRST, relaxed=False)
    programs.launch.updates(_at(programs.data, 1), None, SECOND, relaxed=False)
    with pytest.raises(DataRace, match="reads"):
        programs.read(THIRD, 1)
    programs.write(FIRST, 3, 1.0)
    with pytest.raises(DataRace, match="updates"):
        programs.launch.updates(_at(programs.data, 3), None, SECOND, relaxed=False)


def test_casts_to_smaller_elements_are_watched(programs: Programs) -> None:
    programs.write(FIRST, 2, 1.0)
    half = SimpleNamespace(
        data=np.array([programs.data.data_ptr() + 10], dtype=np.uint64), get_element_ty=lambda: tl.float16
    )
    with pytest.raises(DataRace):
        programs.launch.loads(half, np.ones(1, dtype=bool), SECOND)


def test_one_store_says_one_thing_about_an_element() -> None:
    addresses = np.array([8, 4, 8], dtype=np.uint64)
    assert contradicts(addresses, np.array([[1], [2], [3]], dtype=np.uint8))
    assert not contradicts(addresses, np.array([[1], [2], [1]], dtype=np.uint8))


@pytest.mark.parametrize(
    "dtype", [tl.float32, tl.float16, tl.bfloat16, tl.float8e5, tl.int1, tl.uint8, tl.int64]
)
def test_undefined_lanes_differ_from_load_to_load(dtype: tl.dtype) -> None:
    seen = {undefined((3,), dtype).tobytes() for _ in range(20)}
    assert len(seen) == (2 if dtype == tl.int1 else 3)

"""Memory and values of odd tensors: empty, scalar, broadcast, misaligned, aliased, of every dtype."""

import random

import pytest
import torch

from optimizer.judge.arena import Arena, Layout, place
from optimizer.judge.draws import WeightChange, copy_into, moved
from optimizer.languages.abi import DTYPE_CODES, ITEM_BYTES

_ODD = [
    Layout("empty", (0, 3), (3, 1), "float32"),
    Layout("scalar", (), (), "float64"),
    Layout("broadcast", (4, 5), (1, 0), "bfloat16"),
    Layout("misaligned", (7,), (1,), "float32", 3),
    Layout("shared", (3,), (2,), "int16", 0),
    Layout("shared", (3,), (2,), "int16", 1),
    Layout("strided", (2, 3), (9, 2), "float8_e4m3fn", 5),
]


@pytest.mark.parametrize("name", list(ITEM_BYTES))
def test_item_bytes_are_torchs(name: str) -> None:
    assert getattr(torch, name).itemsize == ITEM_BYTES[name]
    assert len(set(DTYPE_CODES.values())) == len(DTYPE_CODES) == len(ITEM_BYTES)


def test_odd_tensors_lie_apart_and_keep_their_layout() -> None:
    region = place(_ODD, 64, 3)
    arena = Arena("test", region.end)
    arena.poison_outputs(region)
    for slot in range(3):
        views = arena.slot(region, slot)
        for view, layout in zip(views, _ODD, strict=True):
            assert tuple(view.shape) == layout.shape
            assert view.numel() == 0 or tuple(view.stride()) == layout.stride
            view.zero_()
        assert views[3].data_ptr() % 16 == 12
        assert views[5].data_ptr() - views[4].data_ptr() == 2
    assert arena.damaged_gap(region, 3) is None
    gap = region.gaps[1][0]
    arena.bytes[region.base + region.slot_bytes + gap] = 0
    assert arena.damaged_gap(region, 3) == (1, gap)
    assert not arena.sealed
    arena.seal()
    assert arena.sealed
    arena.close()


def test_broadcast_values_are_written_once() -> None:
    region = place([Layout("broadcast", (4, 5), (1, 0), "float32")], 0, 1)
    arena = Arena("test", region.end)
    (view,) = arena.slot(region, 0)
    values = torch.arange(4.0).unsqueeze(1).expand(4, 5)
    copy_into([view], [values.contiguous()])
    assert torch.equal(view, values)
    arena.close()


def test_moving_keeps_strides_offsets_and_shared_storages() -> None:
    base = torch.arange(24.0)
    tensors = [base[1:].as_strided((3, 4), (1, 5), 2), base[8:], torch.empty(0), torch.ones(2).expand(3, 2)]
    there = moved(tensors, torch.device("meta"))
    for tensor, other in zip(tensors, there, strict=True):
        assert other.device.type == "meta"
        assert (other.shape, other.stride(), other.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
        assert other.storage_offset() == tensor.storage_offset()
    assert there[0].untyped_storage()._cdata == there[1].untyped_storage()._cdata
    assert moved(tensors, torch.device("cpu"))[0] is tensors[0]


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.bfloat16, torch.float64, torch.int64])
def test_shuffled_weights_differ_and_come_back(dtype: torch.dtype) -> None:
    weight = torch.arange(1, 41).float().view(5, 8).to(dtype)
    before = weight.clone()
    change = WeightChange.shuffled([weight], random.Random(0))
    change.apply()
    assert float((weight.double() == before.double()).double().mean()) < 0.2
    change.restore()
    assert torch.equal(weight.double(), before.double())


def test_weights_change_to_given_values() -> None:
    weight, scalar = torch.zeros(3, 4), torch.tensor(1)
    change = WeightChange.to([weight, scalar], [torch.ones(3, 4), torch.tensor(7)])
    change.apply()
    assert (float(weight.sum()), int(scalar)) == (12.0, 7)
    change.restore()
    assert (float(weight.sum()), int(scalar)) == (0.0, 1)

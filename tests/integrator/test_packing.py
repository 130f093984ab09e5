"""Packing: siblings in one buffer, and nobody else notices."""

from typing import Any

import pytest
import torch

from integrator.packing import HUGE_PAGE, CannotPack, Packer, pack


def gate_and_up(model: Any) -> list[torch.nn.Parameter]:
    mlp = model.model.layers[0].mlp
    return [mlp.gate_proj.weight, mlp.up_proj.weight]


def storage_bytes(model: Any) -> int:
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}
    return sum(storages.values())


def test_siblings_become_adjacent_views_and_state_dict_is_unchanged(model: Any) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    bytes_before = storage_bytes(model)
    gate, up = gate_and_up(model)
    packing = pack([gate, up], model.parameters())
    assert up.data_ptr() == gate.data_ptr() + gate.numel() * gate.element_size()
    assert gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()
    as_one = packing.buffer.view(-1, gate.shape[1])
    assert torch.equal(as_one, torch.cat([gate, up]))
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert storage_bytes(model) == bytes_before
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_large_buffer_starts_at_a_huge_page(model: Any) -> None:
    large = [torch.nn.Parameter(torch.randn(1024, 700, dtype=torch.bfloat16)) for _ in range(2)]
    values = [weight.clone() for weight in large]
    packing = pack(large)
    assert large[0].data_ptr() % HUGE_PAGE == 0
    assert all(torch.equal(weight, value) for weight, value in zip(large, values, strict=True))
    packing.undo()
    assert large[0].untyped_storage().nbytes() == large[0].numel() * large[0].element_size()


def test_a_tied_weight_stays_where_it_is(model: Any) -> None:
    gate, up = gate_and_up(model)
    address = gate.data_ptr()
    model.twin = torch.nn.Parameter(gate.data)
    assert not Packer(model).pack_if_possible([gate, up])
    assert gate.data_ptr() == address


def test_undo_gives_each_parameter_its_own_storage(model: Any) -> None:
    gate, up = gate_and_up(model)
    values = gate.clone(), up.clone()
    packer = Packer(model)
    packer.pack([gate, up])
    packer.undo()
    assert gate.untyped_storage().data_ptr() != up.untyped_storage().data_ptr()
    assert gate.untyped_storage().nbytes() == gate.numel() * gate.element_size()
    assert torch.equal(gate, values[0])
    assert torch.equal(up, values[1])


def test_a_group_is_packed_once_and_again_after_it_was_moved(model: Any) -> None:
    group = gate_and_up(model)
    packer = Packer(model)
    first = packer.pack(group)
    assert packer.pack(group) is first
    model.to(torch.float32)
    assert not first.intact
    assert packer.pack(group) is not first


def test_saving_and_loading_work_while_packed(model: Any, tmp_path: Any) -> None:
    pack(gate_and_up(model))
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda g, u: [g, g], "twice"),
        (lambda g, u: [g, torch.nn.Parameter(u.float())], "differ"),
        (lambda g, u: [g, torch.nn.Parameter(u.t())], "differ|contiguous"),
        (lambda g, u: [g, torch.nn.Parameter(torch.cat([u, u])[: len(u)])], "larger storage"),
    ],
)
def test_what_cannot_share_a_buffer_is_refused(model: Any, spoil: Any, words: str) -> None:
    gate, up = gate_and_up(model)
    with pytest.raises(CannotPack, match=words):
        pack(spoil(gate, up))


def test_a_weight_tied_through_another_parameter_is_refused(model: Any) -> None:
    gate, up = gate_and_up(model)
    twin = torch.nn.Parameter(gate.data)
    with pytest.raises(CannotPack, match="tied"):
        pack([gate, up], [twin])

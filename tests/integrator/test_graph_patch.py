"""One capture, many variants: exact switching, bit-exact zero-graft graph, swapping order, stale weights."""

from typing import Any

import pytest
import torch
from torch import fx

from extractor.families import Family
from integrator.engine import DecodeEngine
from integrator.graph_patch import GraphPatch, Site, StaleWeights, UnknownGraft, _too_early, build_variant
from integrator.seams import Seam
from tests.integrator.toy import down, find_toy_seams, gate_up


def doubled(value: torch.Tensor) -> torch.Tensor:
    return value * 2


class Patched:
    """A model with a graph patch and an engine to run it."""

    def __init__(self, model: Any, *kernels: Any, batch: int = 1) -> None:
        self.engine = DecodeEngine.prepare(model, batch=batch, prompt=5, tokens=4, seed=0)
        self.patch = GraphPatch(model, kernels, find_toy_seams(model))
        self.forward = self.patch.compile(model.forward)
        self.stock = self.engine.logits(model)

    def logits(self, *grafts: str) -> torch.Tensor:
        self.patch.set_active(grafts)
        return self.engine.logits(self.forward)


def test_the_zero_graft_graph_equals_stock_bit_exactly(model: Any) -> None:
    patched = Patched(model, down())
    assert torch.equal(patched.logits(), patched.stock)


def test_variants_switch_exactly_and_share_one_capture(model: Any) -> None:
    patched = Patched(model, down(spoil=doubled), gate_up(spoil=doubled))
    variants = {name: patched.logits(*name) for name in [(), ("down",), ("gate_up",), ("down", "gate_up")]}
    for i, one in enumerate(variants.values()):
        assert all(not torch.equal(one, other) for j, other in enumerate(variants.values()) if i != j)
    for name, logits in variants.items():
        assert torch.equal(patched.logits(*name), logits)
    assert torch.equal(variants[()], patched.stock)
    assert len(patched.patch.captures) == 1


def test_an_exact_graft_leaves_the_logits_bit_equal_and_is_counted(model: Any) -> None:
    patched = Patched(model, down(), gate_up())
    assert torch.equal(patched.logits("down", "gate_up"), patched.stock)
    assert patched.patch.launches("down") == 2 * 4  # sites x steps
    patched.logits("gate_up")
    assert patched.patch.launches("down") == 2 * 4
    assert patched.patch.launches("gate_up") == 2 * 2 * 4


def test_regions_without_a_kernel_are_reported_with_the_reason(model: Any) -> None:
    patched = Patched(model, down(batches=(1,)), batch=2)
    patched.logits()
    found = {(row.family, row.sites, row.why) for row in patched.patch.captures[0].unserved}
    assert found == {
        (Family.FFN_DOWN, 2, "no kernel was accepted for 2 rows"),
        (Family.FFN_GATE_UP, 2, "no kernel was accepted"),
    }


def test_another_batch_is_another_capture_and_follows_the_active_set(model: Any) -> None:
    patched = Patched(model, down(spoil=doubled))
    one = patched.logits("down")
    engine = DecodeEngine.prepare(model, batch=2, prompt=5, tokens=2, seed=1)
    stock = engine.logits(model)
    assert not torch.equal(engine.logits(patched.forward), stock)
    patched.patch.set_active(())
    assert torch.equal(engine.logits(patched.forward), stock)
    assert len(patched.patch.captures) == 2
    assert torch.equal(patched.logits("down"), one)


def test_switching_to_an_unknown_graft_is_refused(model: Any) -> None:
    with pytest.raises(UnknownGraft, match=r"no graft 'up'.*it has: down"):
        GraphPatch(model, [down()], find_toy_seams(model)).set_active(["up"])


def test_a_weight_written_under_a_graft_is_noticed(model: Any) -> None:
    patched = Patched(model, down())
    patched.logits("down")
    model.model.layers[1].mlp.down_proj.weight.mul_(2)
    with pytest.raises(StaleWeights, match="Qwen3ForCausalLM changed"):
        patched.logits("down")


def test_packed_weights_give_the_same_logits_and_come_apart_on_release(model: Any) -> None:
    mlp = model.model.layers[0].mlp
    patched = Patched(model, gate_up(packs_weights=True))
    assert torch.equal(patched.logits("gate_up"), patched.stock)
    assert (
        mlp.gate_proj.weight.untyped_storage().data_ptr() == mlp.up_proj.weight.untyped_storage().data_ptr()
    )
    patched.patch.release()
    assert (
        mlp.gate_proj.weight.untyped_storage().data_ptr() != mlp.up_proj.weight.untyped_storage().data_ptr()
    )


def chain() -> tuple[fx.GraphModule, list[fx.Node]]:
    """x -> a = relu(x), b = sin(a), in-place add to x, c = cos(b) + x."""

    class Step(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = torch.relu(x)
            b = torch.sin(a)
            x.add_(1.0)
            return torch.cos(b) + x

    graph_module = fx.symbolic_trace(Step())
    return graph_module, list(graph_module.graph.nodes)


def seam(nodes: list[fx.Node], inputs: list[fx.Node], anchor: fx.Node) -> Seam:
    return Seam(
        family=Family.ELEMENTWISE, op_key="k", exact_key="k", site="s", batch=1, rows=1,
        nodes=tuple(nodes), inputs=tuple(inputs), outputs=(nodes[-1],), weights=(), anchor=anchor,
    )  # fmt: skip


def test_neighbouring_regions_are_swapped_together_and_in_place_nodes_stay() -> None:
    graph_module, (x, a, b, *_) = chain()
    calls: list[str] = []

    def graft(name: str, compute: Any) -> Any:
        def call(*inputs: torch.Tensor) -> tuple[torch.Tensor]:
            calls.append(name)
            return (compute(inputs[0]),)

        return call

    kernel = down()
    sites = [
        Site(seam([b], [a], b), kernel, graft("sin", torch.sin), packed=False),
        Site(seam([a], [x], a), kernel, graft("relu", torch.relu), packed=False),
    ]
    run = build_variant(graph_module, sites)
    given = torch.tensor([0.5, -1.0])
    expected = graph_module(given.clone())
    changed = given.clone()
    assert torch.equal(run(changed), expected)
    assert calls == ["relu", "sin"]
    assert torch.equal(changed, given + 1)


def test_a_region_whose_place_is_before_its_input_is_ready_is_left_alone() -> None:
    graph_module, (x, a, b, *_) = chain()
    first, second = seam([a, b], [x], b), seam([a], [a], a)
    assert _too_early(graph_module, [first]) == set()
    late = seam([b], [a], a)
    early = Seam(**{**vars(first), "nodes": (a,), "outputs": (a,), "anchor": b})
    assert _too_early(graph_module, [early, late]) == {a}
    assert second.anchor is a

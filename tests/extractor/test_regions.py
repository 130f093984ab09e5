"""Legality: sets of nodes that must not become a region, each for its own reason."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from extractor.binding import Binding
from extractor.families import Family
from extractor.graph import GraphView, is_inplace
from extractor.regions import Illegal, Region, build_region


class Sketch:
    """A small graph written by hand; every node carries an example value, as Dynamo's do."""

    def __init__(self) -> None:
        self.graph = fx.Graph()

    def place(self, name: str) -> fx.Node:
        node = self.graph.placeholder(name)
        node.meta["example_value"] = torch.zeros(2, 4)
        return node

    def call(self, function, *args) -> fx.Node:
        node = self.graph.call_function(function, args)
        node.meta["example_value"] = torch.zeros(2, 4)
        return node

    def method(self, name: str, *args) -> fx.Node:
        node = self.graph.call_method(name, args)
        node.meta["example_value"] = torch.zeros(2, 4)
        return node

    def region(self, members: set[fx.Node], *returned: fx.Node) -> Region:
        self.graph.output(returned)
        paths = {node: "layer" for node in self.graph.nodes}
        binding = Binding(weights={}, states=(), paths=paths, classes={"layer": "Layer"})
        return build_region(Family.ELEMENTWISE, members, GraphView(self.graph, paths), binding)


def test_a_plain_chain_is_legal() -> None:
    s = Sketch()
    x = s.place("x")
    a = s.call(torch.exp, x)
    b = s.call(torch.neg, a)
    region = s.region({a, b}, b)
    assert (region.inputs, region.outputs, region.anchor) == ((x,), (b,), b)


def test_a_detour_through_an_outside_node_is_not_convex() -> None:
    s = Sketch()
    x = s.place("x")
    a = s.call(torch.exp, x)
    outside = s.call(torch.tanh, a)
    b = s.call(torch.add, a, outside)
    with pytest.raises(Illegal, match="after a user"):
        s.region({a, b}, b)


def test_an_input_must_precede_every_user() -> None:
    s = Sketch()
    x, y = s.place("x"), s.place("y")
    a = s.call(torch.exp, x)
    used = s.call(torch.tanh, a)
    late = s.call(torch.neg, y)
    b = s.call(torch.exp, late)
    with pytest.raises(Illegal, match="after a user"):
        s.region({a, b}, b, used)


def test_a_write_to_an_input_is_illegal() -> None:
    s = Sketch()
    x = s.place("x")
    a = s.method("add_", x, 1)
    b = s.call(torch.exp, a)
    with pytest.raises(Illegal, match="visible outside"):
        s.region({a, b}, b)


def test_an_outside_write_in_the_middle_is_illegal() -> None:
    s = Sketch()
    cache, x = s.place("cache"), s.place("x")
    a = s.call(torch.exp, x)
    s.method("copy_", cache, x)
    b = s.call(torch.add, a, cache)
    with pytest.raises(Illegal, match="under way"):
        s.region({a, b}, b)


def test_an_outside_write_through_a_view_counts() -> None:
    s = Sketch()
    cache, x = s.place("cache"), s.place("x")
    view = s.method("transpose", cache, 0, 1)
    a = s.call(torch.exp, x)
    s.method("zero_", view)
    b = s.call(torch.add, a, cache)
    with pytest.raises(Illegal, match="under way"):
        s.region({a, b}, b)


def test_a_write_before_the_region_is_fine() -> None:
    s = Sketch()
    cache, x = s.place("cache"), s.place("x")
    s.method("copy_", cache, x)
    a = s.call(torch.exp, x)
    b = s.call(torch.add, a, cache)
    assert s.region({a, b}, b).inputs == (x, cache)


def test_a_write_to_its_own_scratch_is_fine() -> None:
    s = Sketch()
    x = s.place("x")
    scratch = s.call(torch.zeros_like, x)
    filled = s.method("copy_", scratch, x)
    b = s.call(torch.exp, scratch)
    assert s.region({scratch, filled, b}, b).outputs == (b,)


def test_a_returned_view_of_an_input_that_is_written_later_is_illegal() -> None:
    s = Sketch()
    x = s.place("x")
    view = s.method("transpose", x, 0, 1)
    a = s.call(torch.exp, view)
    s.method("zero_", x)
    with pytest.raises(Illegal, match="alias"):
        s.region({view, a}, view, a)


def test_a_change_of_interpreter_state_is_a_barrier() -> None:
    s = Sketch()
    x = s.place("x")
    a = s.call(torch.exp, x)
    s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, False)
    b = s.call(torch.neg, a)
    with pytest.raises(Illegal, match="state changes"):
        s.region({a, b}, b)


def test_a_region_nobody_uses_is_illegal() -> None:
    s = Sketch()
    a = s.call(torch.exp, s.place("x"))
    with pytest.raises(Illegal, match="nothing uses"):
        s.region({a})


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("add_", (1,), True),
        ("index_copy_", (0, 1, 2), True),
        ("add", (1,), False),
        ("__len__", (), False),
    ],
)
def test_in_place_methods(name: str, args: tuple[int, ...], expected: bool) -> None:
    s = Sketch()
    assert is_inplace(s.method(name, s.place("x"), *args)) is expected


def test_in_place_functions() -> None:
    import operator

    s = Sketch()
    x = s.place("x")
    assert is_inplace(s.call(operator.setitem, x, 0, 1.0))
    assert is_inplace(s.call(operator.iadd, x, 1))
    assert is_inplace(s.call(torch.nn.functional.silu, x, True))
    assert not is_inplace(s.call(torch.nn.functional.silu, x, False))

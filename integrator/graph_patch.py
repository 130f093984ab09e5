"""The graph patch: one captured decode step, many variants of it, one of them active.

A *capture* is the torch-level graph Dynamo hands over for one decode step (one batch, one cache shape). A *site*
is a region of it that a kernel takes over. A *variant* is a copy of the graph in which the sites of some kernels
are replaced by calls of their grafts; everything else runs eagerly, op for op, as the model wrote it. Switching
variants is one assignment, which makes interleaved A/B runs of many configurations cheap and exact: they share
the capture, the weights, the guards and the bound kernels.

Three facts of the captured graph decide how a region is swapped. Cache reads do not depend on cache writes in it,
so nodes are never re-sorted and in-place nodes are never removed. Swapping renames a neighbour's inputs, so all
sites are found before the first swap. And parameters are placeholders whose real tensors come with the capture, so
grafts are bound to those and checked against them on every call.
"""

from __future__ import annotations

import operator
import time
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from extractor.errors import KernelgraftError
from extractor.graph import op_name
from integrator.graft import Graft, Kernel
from integrator.ledger_schema import Unserved
from integrator.packing import Packer
from integrator.seams import Seam, SeamFinder


class StaleWeights(KernelgraftError):
    """A parameter was changed or moved under a graft that had packed it or kept its address."""

    template = "the weights of {model} changed after it was patched; revert the patch and patch again"


class GraftFailed(KernelgraftError):
    """A bound kernel refused its inputs during a step."""

    template = "graft {graft} failed inside the captured step: {problem}"


class UnknownGraft(KernelgraftError):
    """A configuration names a graft that the capture does not have."""

    template = "no graft {graft!r} in the captured decode step; it has: {known}"


@dataclass(frozen=True)
class Site:
    """One region that one kernel takes over, with the graft bound to it."""

    seam: Seam
    kernel: Kernel
    graft: Graft
    packed: bool  # its weights are views of one buffer in huge pages


@dataclass
class Capture:
    """One captured decode step with its sites and variants."""

    graph_module: fx.GraphModule
    model_name: str
    sites: tuple[Site, ...]
    unserved: tuple[Unserved, ...]
    problems: dict[str, str]  # graft id -> why it could not be bound
    seconds: float  # detecting and binding; Dynamo's own time not included
    stamps: tuple[tuple[int, torch.Tensor, int, int], ...]  # placeholder index, weight, address, version
    _variants: dict[frozenset[str], Callable[..., Any]] = field(default_factory=dict)
    _active: frozenset[str] = frozenset()
    _current: Callable[..., Any] | None = None

    def activate(self, grafts: Iterable[str]) -> None:
        """Make the variant with these grafts the one that runs; it is built the first time it is asked for."""
        wanted = frozenset(grafts) & {site.kernel.id for site in self.sites}
        if wanted not in self._variants:
            self._variants[wanted] = build_variant(
                self.graph_module, [site for site in self.sites if site.kernel.id in wanted]
            )
        self._active, self._current = wanted, self._variants[wanted]

    def run(self, *args: Any) -> Any:
        """Execute the active variant. This is what Dynamo calls for every decode step.

        Raises:
            StaleWeights: a weight that a graft is bound to was replaced, moved or written since.
        """
        for index, weight, address, version in self.stamps:
            given = args[index]
            if given is not weight or given._version != version or given.data_ptr() != address:
                raise StaleWeights(model=self.model_name)
        if self._current is None:
            self.activate(())
        assert self._current is not None
        return self._current(*args)

    def exclude(self, graft: str, why: str) -> None:
        """Take a graft out of this capture for good: its sites run stock and are reported as unserved."""
        unserved = {str(index): row for index, row in enumerate(self.unserved)}
        for site in self.sites_of(graft):
            _count(unserved, site.seam, why)
        active = self._active - {graft}
        self.sites = tuple(site for site in self.sites if site.kernel.id != graft)
        self.unserved = tuple(unserved.values())
        self.problems[graft] = why
        self.activate(active)

    def launches(self, graft: str) -> int:
        """Launches of this graft so far, over all its sites."""
        return sum(site.graft.calls for site in self.sites_of(graft))

    def sites_of(self, graft: str) -> tuple[Site, ...]:
        """The sites this graft has taken over; each is one call a step."""
        return tuple(site for site in self.sites if site.kernel.id == graft)

    @property
    def selects(self) -> bool:
        """True if the step selects experts (``topk``): its logits then jump where two scores nearly tie."""
        return any(op_name(node) == "topk" for node in self.graph_module.graph.nodes)

    def is_packed(self, graft: str) -> bool:
        """True if this graft's weights were made views of one buffer."""
        return any(site.packed for site in self.sites_of(graft))

    def release(self) -> None:
        """Let go of grafts, packed weights and variants; only the plain graph stays runnable."""
        self.sites, self.stamps, self._variants, self._current = (), (), {}, None


class GraphPatch:
    """A torch.compile backend that swaps regions for grafts.

    :meth:`compile` gives a callable for decode steps of one shape. Dynamo calls the backend once for each; each such
    call becomes a :class:`Capture`. All captures follow :meth:`set_active`.
    """

    def __init__(self, model: torch.nn.Module, kernels: Sequence[Kernel], find_seams: SeamFinder) -> None:
        self.kernels = tuple(kernels)
        self.captures: list[Capture] = []
        self._find_seams = find_seams
        self._model_name = type(model).__name__
        self._packer = Packer(model)
        self._active: frozenset[str] = frozenset(kernel.id for kernel in self.kernels)

    def __call__(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        started = time.perf_counter()
        seams = self._find_seams(graph_module, example_inputs)
        capture = bind_sites(
            graph_module, example_inputs, seams, self.kernels, self._packer, self._model_name
        )
        capture.seconds = time.perf_counter() - started
        capture.activate(self._active)
        self.captures.append(capture)
        return capture.run

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """``forward`` through this backend, for decode steps of one batch and cache shape.

        Dynamo keeps compiled versions a code object, and gives up after a few. Models of one class share the code
        of their forward, so every call gets a function with a code object of its own: patches, shapes and models
        cannot exhaust each other, and dropping the result frees what was compiled.
        """

        def decode_step(*args: Any, **kwargs: Any) -> Any:
            return forward(*args, **kwargs)

        own = types.FunctionType(
            decode_step.__code__.replace(), globals(), "decode_step", None, decode_step.__closure__
        )
        compiled: Callable[..., Any] = torch.compile(own, backend=self, fullgraph=True, dynamic=False)
        return compiled

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphPatch:
        """Compile options are deep-copied by transformers; the backend is shared on purpose."""
        return self

    @property
    def active(self) -> frozenset[str]:
        """Ids of the grafts that are switched on, whether or not a capture has sites for them."""
        return self._active

    def set_active(self, grafts: Iterable[str]) -> None:
        """Switch all captures, present and future, to exactly these grafts. Takes effect with the next step.

        Raises:
            UnknownGraft: an id that no kernel of this patch has.
        """
        wanted = frozenset(grafts)
        known = {kernel.id for kernel in self.kernels}
        if unknown := sorted(wanted - known):
            raise UnknownGraft(graft=unknown[0], known=", ".join(sorted(known)) or "none")
        self._active = wanted
        for capture in self.captures:
            capture.activate(wanted)

    def launches(self, graft: str) -> int:
        """Launches of a graft so far, over all captures."""
        return sum(capture.launches(graft) for capture in self.captures)

    def release(self) -> None:
        """Release all captures and undo all packing; the backend must not be used afterwards."""
        for capture in self.captures:
            capture.release()
        self.captures.clear()
        self._packer.undo()


def bind_sites(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    seams: Sequence[Seam],
    kernels: Sequence[Kernel],
    packer: Packer,
    model_name: str,
) -> Capture:
    """Give every seam to the kernel that serves it, and bind that kernel to the seam's real weights."""
    position = {node: index for index, node in enumerate(placeholders(graph_module))}
    early = _too_early(graph_module, seams)
    sites: list[Site] = []
    unserved: dict[str, Unserved] = {}
    problems: dict[str, str] = {}
    stamps: dict[int, tuple[int, torch.Tensor, int, int]] = {}
    for seam in seams:
        kernel = next(
            (k for k in kernels if k.op_key == seam.op_key and k.serves(seam.batch, seam.rows)), None
        )
        if kernel is None:
            known = any(k.op_key == seam.op_key for k in kernels)
            why = f"no kernel was accepted for {seam.rows} rows" if known else "no kernel was accepted"
            _count(unserved, seam, why)
            continue
        if kernel.id in problems:
            _count(unserved, seam, problems[kernel.id])
            continue
        if seam.anchor in early:
            _count(unserved, seam, "its only legal place is before another graft's result is ready")
            continue
        indices = [position[node] for node in seam.weights]
        weights = [example_inputs[index] for index in indices]
        try:
            packed = kernel.packs_weights and packer.pack_if_possible(weights)
            graft = kernel.bind(weights, example_values(seam.inputs), example_values(seam.outputs))
        except KernelgraftError as error:
            problems[kernel.id] = str(error)
            _count(unserved, seam, str(error))
            continue
        sites.append(Site(seam, kernel, graft, packed))
        for index, weight in zip(indices, weights, strict=True):
            stamps[index] = (index, weight, weight.data_ptr(), weight._version)
    sites = [site for site in sites if site.kernel.id not in problems]
    return Capture(
        graph_module=graph_module,
        model_name=model_name,
        sites=tuple(sites),
        unserved=tuple(unserved.values()),
        problems=problems,
        seconds=0.0,
        stamps=tuple(stamps.values()),
    )


def _too_early(graph_module: fx.GraphModule, seams: Sequence[Seam]) -> set[fx.Node]:
    """Anchors of seams that read another seam's output at a place where a call there has not run yet."""
    order = {node: index for index, node in enumerate(graph_module.graph.nodes)}
    ready = {node: order[seam.anchor] for seam in seams for node in seam.outputs}
    return {
        seam.anchor
        for seam in seams
        if any(ready.get(node, -1) >= order[seam.anchor] for node in seam.inputs)
    }


def build_variant(graph_module: fx.GraphModule, sites: Sequence[Site]) -> Callable[..., Any]:
    """A runnable copy of the graph with ``sites`` swapped for their grafts.

    The copy keeps node order. Calls are inserted at the seams' own insertion points, then the regions' now unused
    nodes are erased, last first; nothing outside the regions is touched. ``lint`` verifies the order.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(graph_module.graph, copies))
    live = dict(copies)  # where a value is to be read from now: its copy, or a graft's result
    for site in sites:
        _insert_call(graph, site, copies, live)
    for site in sites:
        for node in reversed(site.seam.nodes):
            if not copies[node].users:
                graph.erase_node(copies[node])
    graph.lint()
    return fx.GraphModule(graph_module, graph, class_name="PatchedStep").forward


def _insert_call(
    graph: fx.Graph, site: Site, copies: dict[fx.Node, fx.Node], live: dict[fx.Node, fx.Node]
) -> None:
    seam, inside = site.seam, {copies[node] for node in site.seam.nodes}
    with graph.inserting_before(copies[seam.anchor]):
        call = graph.call_function(_named(site), tuple(live[node] for node in seam.inputs))
        results = [graph.call_function(operator.getitem, (call, i)) for i in range(len(seam.outputs))]
    for node, result in zip(seam.outputs, results, strict=True):
        result.meta = dict(node.meta)
        copies[node].replace_all_uses_with(result, delete_user_cb=lambda user: user not in inside)
        live[node] = result


def _named(site: Site) -> Callable[..., Any]:
    """The graft as a plain function with a readable name: fx prints call targets by ``__name__``."""
    graft = site.graft

    def call(*inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        try:
            return graft(*inputs)
        except KernelgraftError as error:
            raise GraftFailed(graft=site.kernel.id, problem=error) from error

    call.__name__ = call.__qualname__ = f"graft_{site.kernel.family.value}"
    return call


def placeholders(graph_module: fx.GraphModule) -> list[fx.Node]:
    """The graph's inputs, in the order of its call arguments."""
    return [node for node in graph_module.graph.nodes if node.op == "placeholder"]


def example_values(nodes: Sequence[fx.Node]) -> list[torch.Tensor]:
    """The fake tensors Dynamo recorded for ``nodes``: shape, stride and dtype are right, there is no data."""
    return [node.meta["example_value"] for node in nodes]


def _count(unserved: dict[str, Unserved], seam: Seam, why: str) -> None:
    key = f"{seam.op_key}:{why}"
    sites = unserved[key].sites + 1 if key in unserved else 1
    unserved[key] = Unserved(family=seam.family, op_key=seam.op_key, sites=sites, why=why)

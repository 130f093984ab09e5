"""Time a captured step region by region.

The graph is compiled to Python once more with clock marks between the stretches that belong to different
regions, and run several times from the same state. On the CPU the clock is the thread's CPU time, which other
processes do not disturb.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import fx

from extractor.binding import Binding
from extractor.capture import StepGraph
from extractor.census import Timing
from extractor.execute import fresh_inputs
from extractor.regions import Region


def time_step(
    step: StepGraph, binding: Binding, regions: Sequence[Region], *, repetitions: int = 5, budget: float = 5.0
) -> Timing:
    """Time one step region by region: medians over ``repetitions`` after one warm-up run.

    A step so long that they would take more than ``budget`` seconds is repeated less often, but at least twice.
    """
    owner = {node: index for index, region in enumerate(regions) for node in region.nodes}
    on_gpu = any(isinstance(v, torch.Tensor) and v.is_cuda for v in step.example_inputs)
    clock = _DeviceClock() if on_gpu else _ThreadClock()
    program, marks = _instrument(step.gm, owner, clock.mark)
    rows: list[list[float]] = []
    with torch.no_grad():
        for repetition in range(1 + repetitions):
            arguments = fresh_inputs(step, binding)
            clock.start()
            program(*arguments)
            spans = clock.spans()
            if repetition > 0:
                rows.append(_sum_by_owner(spans, marks, len(regions)))
            if len(rows) >= 2 and sum(map(sum, rows)) > budget:
                break
    middle = [median(column) for column in zip(*rows, strict=True)]
    return Timing(
        regions=tuple(middle[:-1]),
        rest=middle[-1],
        total=sum(middle),
        repetitions=len(rows),
        clock=clock.name,
    )


class _ThreadClock:
    """CPU time of this thread."""

    name = "thread_time"

    def __init__(self) -> None:
        self._times: list[float] = []

    def start(self) -> None:
        self._times = [time.thread_time()]

    def mark(self) -> None:
        self._times.append(time.thread_time())

    def spans(self) -> list[float]:
        times = self._times
        return [b - a for a, b in itertools.pairwise(times)]


class _DeviceClock:
    """CUDA events in stream order; launches are asynchronous, so this is busy time plus gaps."""

    name = "cuda_events"

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []

    def start(self) -> None:
        torch.cuda.synchronize()
        self._events = []
        self.mark()

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def spans(self) -> list[float]:
        torch.cuda.synchronize()
        pairs = zip(self._events, self._events[1:], strict=False)
        return [a.elapsed_time(b) / 1e3 for a, b in pairs]


def _instrument(
    gm: fx.GraphModule, owner: dict[fx.Node, int], mark: Callable[[], None]
) -> tuple[fx.GraphModule, list[int]]:
    """A copy of the graph with a mark after every stretch of one owner; -1 owns what no region claims."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    owners: list[int] = []
    current: int | None = None
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            copied[node] = graph.node_copy(node, copied.__getitem__)
            continue
        belongs = owner.get(node, -1)
        if current is not None and (belongs != current or node.op == "output"):
            graph.call_function(mark)
            owners.append(current)
        current = belongs
        copied[node] = graph.node_copy(node, copied.__getitem__)
    return fx.GraphModule(gm, graph), owners


def _sum_by_owner(spans: list[float], owners: list[int], count: int) -> list[float]:
    sums = [0.0] * (count + 1)
    for span, owner in zip(spans, owners, strict=True):
        sums[owner if owner >= 0 else count] += span
    return sums

"""Record one whole step of a model as a torch-level graph, with the real tensors that enter it.

A torch.compile backend of our own receives the graph (``fullgraph``, static shapes) under a ``StaticCache``;
nothing is compiled. Decode is captured after a real prefill, so that its cache holds real keys and values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from extractor.cache_argument import as_cache_argument
from extractor.errors import KernelgraftError
from extractor.graph import StepDims
from extractor.schema import Phase

if TYPE_CHECKING:
    from transformers import PreTrainedModel, StaticCache


class CaptureFailed(KernelgraftError):
    """Dynamo could not record the step as one graph, or the model refuses a static cache."""

    template = (
        "cannot record {phase} of {model} as one graph: {problem}; "
        "its architecture is not supported by extraction yet"
    )


@dataclass(frozen=True)
class StepGraph:
    """One recorded step.

    ``example_inputs`` match the graph's placeholders: the model's own parameters, and private copies of
    everything else (ids, caches) as they were before the step.
    """

    gm: fx.GraphModule
    example_inputs: tuple[Any, ...]
    phase: Phase
    dims: StepDims

    @property
    def batch(self) -> int:
        return self.dims.batch

    @property
    def rows(self) -> int:
        """M: batch times query length."""
        return self.dims.rows

    @property
    def cache_len(self) -> int:
        return self.dims.cache_len


def cache_length(prompt: int, tokens: int) -> int:
    """Slots of the static cache: prompt plus new tokens, rounded up to a multiple of 16.

    >>> cache_length(32, 33)
    80
    """
    return -(-(prompt + tokens) // 16) * 16


def capture_step(
    model: PreTrainedModel, phase: Phase | str, batch: int, prompt: int, cache_len: int, seed: int = 0
) -> StepGraph:
    """Capture one step.

    Raises:
        CaptureFailed: the step is not one graph, or the model cannot use a static cache.
    """
    return capture_steps(model, (Phase(phase),), batch, prompt, cache_len, seed)[0]


def capture_steps(
    model: PreTrainedModel, phases: Sequence[Phase], batch: int, prompt: int, cache_len: int, seed: int = 0
) -> list[StepGraph]:
    """Capture prefill, decode or both (in that order) with one prompt of random token ids drawn with ``seed``."""
    vocabulary = int(model.config.get_text_config().vocab_size)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocabulary, (batch, prompt), generator=generator).to(model.device)
    token = torch.randint(0, vocabulary, (batch, 1), generator=generator).to(model.device)
    steps: list[StepGraph] = []
    with torch.no_grad():
        cache = _prepared_cache(model, ids, cache_len)
        if Phase.DECODE in phases:
            dims = StepDims(batch=batch, query=1, cache_len=cache_len)
            steps.append(StepGraph(*_record(model, Phase.DECODE, token, cache), Phase.DECODE, dims))
        if Phase.PREFILL in phases:
            cache.reset()
            dims = StepDims(batch=batch, query=prompt, cache_len=cache_len)
            steps.insert(0, StepGraph(*_record(model, Phase.PREFILL, ids, cache), Phase.PREFILL, dims))
    return steps


def _prepared_cache(model: PreTrainedModel, ids: torch.Tensor, cache_len: int) -> StaticCache:
    """A static cache filled by an eager prefill; allocated before capture, so that it enters the graph as inputs."""
    from transformers import StaticCache

    try:
        cache = StaticCache(config=model.config, max_cache_len=cache_len)
        model.base_model(ids, **as_cache_argument(model.base_model, cache), use_cache=True)
    except (KeyError, ValueError, NotImplementedError, AttributeError) as error:
        problem = f"it cannot run with a static cache ({type(error).__name__}: {first_line(error)})"
        raise CaptureFailed(phase="a step", model=type(model).__name__, problem=problem) from error
    return cache


class _Recorded(Exception):
    """Ends the captured step before it runs: the graph is all that is wanted, and the cache stays as it was."""


def _record(
    model: PreTrainedModel, phase: Phase, ids: torch.Tensor, cache: StaticCache
) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    own = {id(tensor) for tensor in [*model.parameters(), *model.buffers()]}
    caught: list[tuple[fx.GraphModule, tuple[Any, ...]]] = []

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        caught.append((gm, tuple(_private(value, own) for value in example_inputs)))

        def stop(*_: Any) -> Any:
            raise _Recorded

        return stop

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
    try:
        with warnings.catch_warnings():
            # Dynamo remarks on caches it looks through; nothing a user could act on.
            warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\._dynamo")
            compiled(ids, **as_cache_argument(model, cache), use_cache=True, logits_to_keep=1)
    except _Recorded:
        pass
    except torch._dynamo.exc.TorchDynamoException as error:
        raise CaptureFailed(phase=phase, model=type(model).__name__, problem=first_line(error)) from error
    finally:
        torch._dynamo.reset()
    if len(caught) != 1:
        problem = f"it falls into {len(caught)} graphs"
        raise CaptureFailed(phase=phase, model=type(model).__name__, problem=problem)
    return caught[0]


def _private(value: Any, own: set[int]) -> Any:
    """Parameters as they are; any other tensor copied with its strides, since the step may write to it."""
    if not isinstance(value, torch.Tensor) or id(value) in own:
        return value
    return value.detach().clone(memory_format=torch.preserve_format)


def first_line(error: BaseException) -> str:
    """The first non-empty line of an error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__

"""``patch(model, run)``: a live model whose decode steps run through the grafted graph, until reverted.

Only ``forward`` of this one instance is replaced (where accelerate has put a hook, the slot behind the hook), by an
object that sends decode steps over a static cache through the compiled, grafted graph and everything else (prefill,
dynamic caches, training, unusual outputs) to the stock forward. Whatever goes stock is counted with its reason, so
that a patch that never runs cannot go unnoticed.
"""

from __future__ import annotations

import inspect
import types
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from extractor.cache_argument import cache_argument
from extractor.errors import KernelgraftError
from extractor.run_folder import RunFolder, read_json
from extractor.task import load_tasks
from integrator.decode_cache import Bookmark, why_not_replayable
from integrator.fit import WrongModel, misfit
from integrator.graft import Kernel
from integrator.graph_patch import GraftFailed, GraphPatch
from integrator.kernels import AcceptedKernel, accepted_kernels
from integrator.ledger_schema import Ledger, Unserved
from integrator.seams import SeamFinder, seam_finder

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_CAPTURES = 16  # decode shapes one patch captures; further shapes run stock
_UNUSUAL = ("labels", "output_attentions", "output_hidden_states", "output_router_logits", "inputs_embeds")


class AlreadyPatched(KernelgraftError):
    """One patch a model at a time."""

    template = (
        "this {model} is already patched; revert the first patch (handle.revert()) before patching again"
    )


class NothingToPatch(KernelgraftError):
    """The run has no kernel that serves decode steps."""

    template = "run {run} has no accepted kernel for decode steps{detail}; nothing was patched"


@dataclass
class Engagement:
    """What a patched model has done so far.

    ``launches`` counts kernel launches by graft id, ``patched_steps`` decode steps through the grafted graph, and
    ``stock_calls`` forwards that ran stock, by reason. ``unserved`` lists regions without a kernel, by capture.
    """

    patched_steps: int = 0
    stock_calls: Counter[str] = field(default_factory=Counter)
    launches: dict[str, int] = field(default_factory=dict)
    unserved: tuple[Unserved, ...] = ()


class PatchedForward:
    """The callable in the model's ``forward`` slot. A deep copy or a pickle of the model holds the stock forward."""

    def __init__(self, model: PreTrainedModel, original: Callable[..., Any], patch: GraphPatch) -> None:
        self.engagement = Engagement()
        # `generate` asks the forward which arguments it takes, and leaves out positions and masks it does not.
        self.__signature__ = inspect.signature(original)
        self._model = model
        self._original = original
        self._patch = patch
        self._compiled: dict[tuple[object, ...], Callable[..., Any]] = {}  # by decode shape

    # An outer torch.compile must call this object, not trace through it: traced, the grafts would silently be lost.
    @torch.compiler.disable
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        reason = self._why_stock(args, kwargs)
        if reason is not None:
            self.engagement.stock_calls[reason] += 1
            return self._original(*args, **kwargs)
        self.engagement.patched_steps += 1
        shape = _decode_shape(args, kwargs)
        if shape not in self._compiled:
            self._compiled[shape] = self._patch.compile(self._original)
            return self._first_step(self._compiled[shape], args, kwargs)
        return self._compiled[shape](*args, **kwargs)

    def _first_step(self, step: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The first step of a new shape: kernels that decline it are taken out, counted as unserved, and it is rerun.

        A step that breaks off has moved the cache on; the bookmark takes it back.
        """
        bookmark = Bookmark.of(cache_argument(kwargs))
        for _ in self._patch.kernels:
            try:
                return step(*args, **kwargs)
            except GraftFailed as error:
                bookmark.restore()
                self._patch.captures[-1].exclude(str(error.details["graft"]), str(error.details["problem"]))
        return step(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., Any]:
        return stock_forward(memo.get(id(self._model), self._model))

    def __reduce__(self) -> tuple[Any, ...]:
        return stock_forward, (self._model,)

    def _why_stock(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Why this call runs stock, or None."""
        tokens = args[0] if args else kwargs.get("input_ids")
        cache = cache_argument(kwargs)
        if not isinstance(tokens, torch.Tensor) or len(args) > 1:
            return "unusual arguments"
        if any(kwargs.get(name) not in (None, False) for name in _UNUSUAL):
            return "unusual arguments"
        if torch.is_grad_enabled() and self._model.training:
            return "training"
        if tokens.shape[1] != 1:
            return "prefill"
        if (reason := why_not_replayable(cache)) is not None:
            return reason
        assert cache is not None
        if not cache.is_initialized:
            return "empty cache"
        batch = int(tokens.shape[0])
        if not any(kernel.serves(batch, batch) for kernel in self._patch.kernels):
            return f"no kernel for batch {batch}"
        if len(self._compiled) >= MAX_CAPTURES and _decode_shape(args, kwargs) not in self._compiled:
            return "too many decode shapes"
        return None


def stock_forward(model: Any) -> Callable[..., Any]:
    """The forward of the model's class, bound to it."""
    return types.MethodType(type(model).forward, model)


def _decode_shape(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[object, ...]:
    """What Dynamo specialises a decode step on, as far as callers of ``generate`` vary it."""
    tokens = args[0] if args else kwargs["input_ids"]
    mask = kwargs.get("attention_mask")
    return (
        int(tokens.shape[0]),
        int(cache_argument(kwargs).get_max_length()),
        tuple(sorted(name for name, value in kwargs.items() if value is not None)),
        tuple(mask.shape) if isinstance(mask, torch.Tensor) else type(mask).__name__,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    )


class PatchHandle:
    """A patched model. Leaving the ``with`` block, or :meth:`revert`, makes it exactly what it was.

    >>> with patch(model, "runs/demo") as handle:  # doctest: +SKIP
    ...     model.generate(ids, cache_implementation="static")
    >>> handle.engagement.launches  # doctest: +SKIP
    {'ffn_down-1a2b3c4d5e@0f9e8d7c': 896}
    """

    def __init__(
        self, model: PreTrainedModel, kernels: Sequence[Kernel], find_seams: SeamFinder | None = None
    ) -> None:
        self.model = model
        self._slot = "_old_forward" if hasattr(model, "_hf_hook") else "forward"
        original = getattr(model, self._slot)
        if isinstance(original, PatchedForward):
            raise AlreadyPatched(model=type(model).__name__)
        self._kernels = tuple(kernels)
        self._patch = GraphPatch(model, kernels, find_seams or seam_finder(model))
        self._had_own = self._slot in vars(model)
        self._original = original
        self._forward = PatchedForward(model, original, self._patch)
        self._last: Engagement | None = None
        setattr(model, self._slot, self._forward)

    @property
    def grafts(self) -> frozenset[str]:
        """Ids of the grafts that are switched on."""
        return self._patch.active

    def set_active(self, grafts: Iterable[str]) -> None:
        """Switch to exactly these grafts, from the next step on. Raises UnknownGraft."""
        self._patch.set_active(grafts)

    @property
    def engagement(self) -> Engagement:
        """Counters up to now; after :meth:`revert`, up to then."""
        if self._last is not None:
            return self._last
        found = self._forward.engagement
        return Engagement(
            patched_steps=found.patched_steps,
            stock_calls=Counter(found.stock_calls),
            launches={kernel.id: self._patch.launches(kernel.id) for kernel in self._kernels},
            unserved=tuple(row for capture in self._patch.captures for row in capture.unserved),
        )

    def revert(self) -> None:
        """Put the stock forward back and undo weight packing. Doing it twice is harmless."""
        if self._last is not None:
            return
        self._last = self.engagement
        if self._had_own:
            setattr(self.model, self._slot, self._original)
        else:
            delattr(self.model, self._slot)
        self._patch.release()
        for kernel in self._kernels:
            if isinstance(kernel, AcceptedKernel):
                kernel.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.revert()


def patch(model: PreTrainedModel, run: str | Path) -> PatchHandle:
    """Graft a run's kernels into ``model`` (in place) and return the handle that reverts it.

    If the run has a ledger, only the grafts it kept are used, batch by batch; without one, all accepted kernels.
    The model must have the architecture and dtype the run was extracted with. Regions that still do not match, for
    another attention implementation say, stay stock (see ``handle.engagement.unserved``).

    Raises:
        RunMissing, NoGrafts, CorruptGrafts, NothingToPatch, WrongModel, AlreadyPatched: one
            sentence each.
    """
    folder = RunFolder(Path(run)).open()
    kernels = kept_kernels(folder)
    grafted = {kernel.op_key for kernel in kernels}
    specs = [task.spec for task in load_tasks(folder.tasks_dir) if task.spec.op_key in grafted]
    difference = misfit(model, specs)
    if difference is not None:
        manifest = folder.manifest
        raise WrongModel(run=folder.path, difference=difference, model=manifest.model, dtype=manifest.dtype)
    return PatchHandle(model, kernels)


def kept_kernels(run: RunFolder) -> list[AcceptedKernel]:
    """The run's accepted kernels, cut down to what its ledger kept. Raises NothingToPatch if none is left."""
    kernels = accepted_kernels(run)
    detail = ""
    if run.ledger_path.exists():
        ledger = read_json(run.ledger_path, Ledger, remedy="write it again with `kernelgraft integrate`")
        kept = {(row.batch, graft.graft) for row in ledger.batches for graft in row.grafts if graft.kept}
        measured = {row.batch for row in ledger.batches}
        kernels = [_limit(kernel, measured, kept) for kernel in kernels]
        detail = " that its ledger kept"
    kernels = [kernel for kernel in kernels if kernel.workloads]
    if not kernels:
        raise NothingToPatch(run=run.path, detail=detail)
    return kernels


def _limit(kernel: AcceptedKernel, measured: set[int], kept: set[tuple[int, str]]) -> AcceptedKernel:
    return kernel.limited(lambda w: w.batch not in measured or (w.batch, kernel.id) in kept)

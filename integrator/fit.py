"""Whether a model is one that a run's kernels can serve: by the parameters of the sites they were extracted from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from extractor.errors import KernelgraftError

if TYPE_CHECKING:
    import torch

    from extractor.schema import Site, TaskSpec


class WrongModel(KernelgraftError):
    """No kernel of the run can ever serve this model."""

    template = (
        "the kernels of {run} do not fit this model: {difference}; load {model} in {dtype}, as the run did, "
        "or optimize a run for your model"
    )


def misfit(model: torch.nn.Module, specs: Sequence[TaskSpec]) -> str | None:
    """The first difference between the model and the tasks' sites, or None if any site is there as extracted.

    Tasks without weights say nothing about a model and are passed over; if there are no others, it fits.
    """
    present = {
        name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for named in (model.named_parameters(remove_duplicate=False), model.named_buffers())
        for name, tensor in named
    }
    first: str | None = None
    for spec in specs:
        for site in spec.sites if spec.weights else ():
            difference = _site_difference(present, spec, site)
            if difference is None:
                return None
            first = first or difference
    return first


def _site_difference(
    present: dict[str, tuple[str, tuple[int, ...]]], spec: TaskSpec, site: Site
) -> str | None:
    """How a site differs from the model's parameters. A site lists its parameters in the order of the weights."""
    for weight, name in zip(spec.weights, site.parameters.values(), strict=False):
        wanted = (weight.dtype, weight.shape)
        found = present.get(name)
        if found is None:
            return f"it has no parameter {name}"
        if found != wanted:
            return f"its {name} is {found[0]} {list(found[1])}, not {wanted[0]} {list(wanted[1])}"
    return None

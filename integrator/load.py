"""``load(run)``: the run's model, loaded and patched, ready to ``generate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from extractor.models import load_model
from extractor.run_folder import RunFolder
from integrator.patch import PatchHandle, patch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

HANDLE = "kernelgraft_patch"  # attribute of a loaded model that holds its PatchHandle


def load(run: str | Path) -> PreTrainedModel:
    """Load the model of a run as it was extracted, patched with the run's kernels.

    The handle (engagement, ``revert``) is the model's attribute ``kernelgraft_patch``. Decode steps use the kernels
    when the cache is static: ``model.generate(ids, cache_implementation="static")``, which is made the default here.

    Raises:
        RunMissing, NoGrafts, NothingToPatch and everything ``load_model`` raises.
    """
    folder = RunFolder(Path(run)).open()
    manifest = folder.manifest
    model = load_model(
        manifest.model,
        dtype=manifest.dtype,
        attention=manifest.attention,
        device=manifest.device,
        seed=manifest.seed,
        revision=manifest.revision,
    ).model
    model.generation_config.cache_implementation = "static"
    handle: PatchHandle = patch(model, folder.path)
    setattr(model, HANDLE, handle)
    return model

"""Load a language model by Hub id, local checkpoint folder, or ``preset:NAME``, ready to be captured."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extractor.errors import KernelgraftError, UsageError
from extractor.laws import torch_dtype
from extractor.presets import PREFIX, Preset, load_preset
from extractor.schema import WeightSource

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = ("bfloat16", "float32", "float16")
ATTENTIONS = ("auto", "eager", "sdpa")


class UnknownModel(UsageError):
    """Nothing of that name on disk, among the presets or on the Hub."""

    template = "cannot find model {name!r}: {problem}"


class UnsupportedArchitecture(KernelgraftError):
    """The installed transformers cannot build this model, or it is no causal language model."""

    template = "model {name!r} is not supported: {problem}"


class NoDevice(UsageError):
    """The device asked for is not there."""

    template = "device {device!r} is not available: {problem}; use --device cpu"


class BadOption(UsageError):
    """A value outside a closed set."""

    template = "{option} {value!r} is not one of: {allowed}"


@dataclass(frozen=True)
class LoadedModel:
    """A model in eval mode on its device, and where its weights came from.

    ``attention`` and ``experts`` are the resolved implementations (``none`` without experts); ``preset`` tells
    random weights from real ones.
    """

    model: PreTrainedModel
    name: str
    preset: bool
    config: Any
    source: WeightSource
    dtype: str
    device: str
    attention: str
    experts: str


def load_model(
    name: str,
    *,
    dtype: str = "bfloat16",
    attention: str = "auto",
    device: str = "cpu",
    seed: int = 0,
    revision: str | None = None,
    experts: str = "auto",
) -> LoadedModel:
    """Load ``name`` for inference.

    Args:
        name: ``preset:NAME``, a folder holding ``config.json``, or a Hub id.
        attention: ``auto`` is ``eager`` on the CPU (its decode is the faster stock one there), else ``sdpa``.
        seed: presets only, what the random weights are drawn with.
        experts: how a mixture of experts multiplies: ``grouped_mm``, ``batched_mm``, or ``auto`` (what decode
            really runs: grouped on the CPU, batched elsewhere).

    Raises:
        UnknownModel, UnknownPreset, UnsupportedArchitecture, NoDevice, BadOption: one sentence each.
    """
    import torch

    if dtype not in DTYPES:
        raise BadOption(option="dtype", value=dtype, allowed=", ".join(DTYPES))
    if attention not in ATTENTIONS:
        raise BadOption(option="attention", value=attention, allowed=", ".join(ATTENTIONS))
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise BadOption(option="device", value=device, allowed="cpu, cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        raise NoDevice(device=device, problem="PyTorch sees no CUDA GPU")
    if attention == "auto":
        attention = "eager" if kind == "cpu" else "sdpa"
    if experts == "auto":
        experts = "grouped_mm" if kind == "cpu" else "batched_mm"
    options = {"attn_implementation": attention}
    preset = name.startswith(PREFIX)
    if preset:
        model = _from_preset(load_preset(name), torch_dtype(dtype), options, seed)
    else:
        model = _from_checkpoint(name, revision, torch_dtype(dtype), options)
    model = model.eval().requires_grad_(False).to(device)
    experts = _choose_experts(model, experts)
    source = WeightSource(model=name, revision=revision, seed=seed if preset else None)
    return LoadedModel(
        model=model,
        name=name,
        preset=preset,
        config=model.config,
        source=source,
        dtype=dtype,
        device=device,
        attention=attention,
        experts=experts,
    )


def _choose_experts(model: PreTrainedModel, wanted: str) -> str:
    """Switch a mixture of experts away from the eager loop, which no graph can hold; dense models have none."""
    present = model.get_experts_implementation()[""]
    if present in (None, "eager"):  # what transformers leaves on models without switchable experts
        return "none"
    if present != wanted:
        model.set_experts_implementation(wanted)
    return wanted


def _from_preset(preset: Preset, dtype: Any, options: dict[str, str], seed: int) -> PreTrainedModel:
    """Build the shape without any default initialisation of matrices, then draw the weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import guard_torch_init_functions, no_init_weights

    from extractor.random_weights import randomize

    try:
        config = AutoConfig.for_model(preset.model_type, **preset.config)
    except ValueError as error:
        raise UnsupportedArchitecture(name=f"{PREFIX}{preset.name}", problem=_first_line(error)) from error
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, **options)
    model.tie_weights()
    for tensor in model.parameters():
        # The flag tells transformers that a tensor is set already; only vectors are left for it to initialise.
        tensor._is_hf_initialized = tensor.ndim >= 2
    with torch.random.fork_rng(devices=[]), guard_torch_init_functions():
        torch.manual_seed(seed)
        model.initialize_weights()
    for tensor in model.parameters():
        del tensor._is_hf_initialized
    randomize(model, seed)
    return model


def _from_checkpoint(name: str, revision: str | None, dtype: Any, options: dict[str, str]) -> PreTrainedModel:
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = Path(name)
    if folder.exists() and not (folder / "config.json").is_file():
        raise UnknownModel(name=name, problem="the folder holds no config.json, so it is no checkpoint")
    if not folder.exists() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise UnknownModel(name=name, problem="no such folder")
    try:
        config = AutoConfig.from_pretrained(name, revision=revision)
        return AutoModelForCausalLM.from_pretrained(
            name, config=config, revision=revision, dtype=dtype, **options
        )
    except (
        OSError
    ) as error:  # transformers folds missing files, missing repositories and no network into this
        raise UnknownModel(name=name, problem=_why_missing(folder.exists(), error)) from error
    except (ValueError, KeyError, ImportError) as error:
        raise UnsupportedArchitecture(name=name, problem=_first_line(error)) from error


def _why_missing(local: bool, error: OSError) -> str:
    if local:
        return _first_line(error)
    remedy = "check the spelling, give a checkpoint folder, or use preset:NAME"
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        return f"it is not in the local cache and HF_HUB_OFFLINE is set; {remedy}"
    return f"not a folder here, and the Hub has no such model or cannot be reached; {remedy}"


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(". ")

"""Presets: model shapes shipped as data, for machines without a checkpoint or a network.

A preset is one JSON file in ``presets/``: a description, a transformers model type and the keyword arguments of
its configuration. Weights are random; see :mod:`extractor.models` for the law they follow.
"""

from __future__ import annotations

import difflib
import json
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict

from extractor.errors import UsageError

PREFIX = "preset:"


class UnknownPreset(UsageError):
    """A ``preset:NAME`` that is not shipped."""

    template = "no preset named {name!r}; {hint}"


class Preset(BaseModel):
    """A model shape. ``model_type`` and ``config`` are what ``transformers.AutoConfig.for_model`` takes."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    name: str
    description: str
    model_type: str
    config: dict[str, Any]


def preset_names() -> list[str]:
    """All shipped presets, sorted.

    >>> "qwen3-0.6b" in preset_names()
    True
    """
    folder = resources.files("extractor") / "presets"
    return sorted(
        entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")
    )


def load_preset(name: str) -> Preset:
    """Read one preset; ``name`` may carry the ``preset:`` prefix.

    Raises:
        UnknownPreset: there is none of that name; the sentence names the closest ones.
    """
    bare = name.removeprefix(PREFIX)
    known = preset_names()
    if bare not in known:
        close = difflib.get_close_matches(bare, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"choose one of: {', '.join(known)}"
        raise UnknownPreset(name=bare, hint=hint)
    text = (resources.files("extractor") / "presets" / f"{bare}.json").read_text(encoding="utf-8")
    return Preset(name=bare, **json.loads(text))

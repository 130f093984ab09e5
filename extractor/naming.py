"""Readable, unique Python names for the values of a region."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable

from torch import fx

from extractor.detectors.context import VIEWS
from extractor.families import Family
from extractor.graph import op_name
from extractor.regions import Region

# Names a program uses itself.
_TAKEN = (
    frozenset({"torch", "nn", "F", "self", "Model"}) | frozenset(dir(builtins)) | frozenset(keyword.kwlist)
)


def name_values(region: Region) -> dict[fx.Node, str]:
    """Names for the region's inputs and nodes; roles name inputs (``query``, ``cos``), source variables the rest."""
    names: dict[fx.Node, str] = {}
    used: set[str] = set()
    for node, wanted in zip(region.inputs, _input_names(region), strict=True):
        names[node] = unique(wanted, used)
    for node in region.nodes:
        names[node] = unique(_clean(node.name), used)
    return names


def unique(wanted: str, used: set[str]) -> str:
    """``wanted``, or ``wanted_2`` and so on; remembers it in ``used``."""
    if wanted in _TAKEN:
        wanted += "_value"
    name, count = wanted, 1
    while name in used:
        count += 1
        name = f"{wanted}_{count}"
    used.add(name)
    return name


def _input_names(region: Region) -> Iterable[str]:
    for node in region.inputs:
        role = region.roles.get(node, "")
        if role in ("key", "value"):
            yield f"{role}_cache" if node.op == "placeholder" else role
        elif role == "ids":
            yield "expert_ids"
        elif role == "channels":
            yield "convolved"
        elif role:
            yield role
        elif region.family is Family.QK_NORM_ROPE:
            yield _head_name(node, region)
        else:
            yield _clean(node.name)


def _head_name(node: fx.Node, region: Region) -> str:
    """``query`` or ``key`` by which half of the outputs it leads to, in source order; else the variable's name."""
    if op_name(node) not in VIEWS | {"linear"}:
        return _clean(node.name)
    plain = [n for n in region.inputs if n not in region.roles]
    return ("query", "key")[plain.index(node)] if len(plain) == 2 else _clean(node.name)


def _clean(name: str) -> str:
    """``hidden_states_14`` -> ``hidden_states``; ``l_kwargs_past_key_values_layers_0_keys`` -> ``keys``."""
    if name.startswith("l_"):
        name = re.split(r"_\d+_", name)[-1].rstrip("_") or name
    name = re.sub(r"(_\d+)+$", "", name).strip("_")
    name = re.sub(r"\W", "_", name)
    return name if name and not name[0].isdigit() else f"value_{name}"

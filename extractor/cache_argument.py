"""What a model's forward calls its key/value cache: ``past_key_values``, and since transformers 5.24 ``cache``.

The one place that knows both names. Calls are read by the name they carry; calls of our own use the name that the
model's forward declares, so that no deprecation shim runs (and is timed) in every step.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

NAMES = ("cache", "past_key_values")


def cache_argument(kwargs: Mapping[str, Any]) -> Any:
    """The cache among a forward's keyword arguments, or None.

    >>> cache_argument({"cache": 1}), cache_argument({"past_key_values": 2}), cache_argument({})
    (1, 2, None)
    """
    return next((kwargs[name] for name in NAMES if kwargs.get(name) is not None), None)


def as_cache_argument(model: nn.Module, cache: Any) -> dict[str, Any]:
    """``cache`` as the keyword argument that the forward of ``model`` declares; the older name if it declares none.

    ``model(ids, **as_cache_argument(model, cache))``. The class is asked, not the instance, whose forward may be
    patched, hooked or compiled.
    """
    declared = inspect.signature(type(model).forward).parameters
    name = next((name for name in NAMES if name in declared), NAMES[-1])
    return {name: cache}

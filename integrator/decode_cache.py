"""A static key/value cache that can be rewound, and the refusal of caches that cannot.

transformers 5.17 keeps the write position inside the cache (``layer.cumulative_length``, a tensor), so a decode
is repeated from position p by putting that tensor back: keys and values beyond p are masked until they are
overwritten. Recurrent and convolution states of linear-attention layers are overwritten in place every step and
are therefore kept as copies. A sliding-window layer counts in a Python integer, which a captured graph would
freeze; when the window holds the whole sequence it *is* a plain layer, and is replaced by one; else it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import StaticCache
from transformers.cache_utils import LinearAttentionCacheLayerMixin, StaticLayer

from extractor.errors import KernelgraftError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_POSITIONS = ("cumulative_length", "indexer_cumulative_length")


class UndecodableCache(KernelgraftError):
    """The model's static cache cannot be decoded right from one captured graph."""

    template = "{model} cannot be integrated: {reason}"


def static_cache(model: PreTrainedModel, length: int) -> StaticCache:
    """An empty static cache of ``length`` slots whose positions are tensors.

    Raises:
        UndecodableCache: a layer kind has no static form, or a sliding window shorter than ``length``.
    """
    config = model.config.get_text_config(decoder=True)
    try:
        cache = StaticCache(config=model.config, max_cache_len=length)
    except KeyError as error:
        reason = f"its {error.args[0]} layers have no static cache in this transformers release"
        raise UndecodableCache(model=type(model).__name__, reason=reason) from error
    window = getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None)
    for index, layer in enumerate(cache.layers):
        if not getattr(layer, "is_sliding", False):
            continue
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            reason = (
                "a layer mixes linear attention with a sliding window, whose position is a Python integer"
            )
            raise UndecodableCache(model=type(model).__name__, reason=reason)
        if window is None or window < length:
            reason = (
                f"its sliding window of {window} is shorter than prompt and tokens together ({length}), and its "
                "cache then counts positions in Python; lower --prompt or --tokens"
            )
            raise UndecodableCache(model=type(model).__name__, reason=reason)
        cache.layers[index] = StaticLayer(max_cache_len=length)
    return cache


def why_not_replayable(cache: Any) -> str | None:
    """Why decode steps over this cache cannot go through a captured graph; None if they can."""
    if not isinstance(cache, StaticCache):
        return "no static cache"
    if any(getattr(layer, "is_sliding", False) for layer in cache.layers):
        return "sliding-window cache"
    if any(getattr(layer, "record_past", False) for layer in cache.layers):
        return "cache that records its past"
    return None


@dataclass(frozen=True)
class Bookmark:
    """The small state of a cache at one position; :meth:`restore` rewinds the cache to it."""

    state: tuple[tuple[torch.Tensor, torch.Tensor], ...]  # (live tensor, its copy)

    @classmethod
    def of(cls, cache: StaticCache) -> Bookmark:
        """Remember where ``cache`` is. Keys and values are not copied: later ones are masked by the position."""
        return cls(tuple((tensor, tensor.clone()) for tensor in _small_state(cache)))

    def restore(self) -> None:
        """Rewind the cache in place; the tensors' addresses stay the same."""
        for live, kept in self.state:
            live.copy_(kept)


def _small_state(cache: StaticCache) -> list[torch.Tensor]:
    """Positions and recurrent states: everything a decode step changes besides key and value rows."""
    found: list[torch.Tensor] = []
    for layer in cache.layers:
        found += [
            value for name in _POSITIONS if isinstance(value := getattr(layer, name, None), torch.Tensor)
        ]
        for states in (getattr(layer, "conv_states", None), getattr(layer, "recurrent_states", None)):
            if states is not None:
                found += [state for state in states.values() if state is not None]
    return found

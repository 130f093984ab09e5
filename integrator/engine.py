"""The decode engine: one prompt, prefilled once by the stock model, decoded again and again by any arm.

Every arm decodes the same forced tokens from the same cache position, and computes the greedy argmax of every step
as a real decode loop would, so all arms do the same work. The prefill always runs stock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from extractor.cache_argument import as_cache_argument
from extractor.capture import cache_length
from integrator.decode_cache import Bookmark, static_cache

if TYPE_CHECKING:
    from transformers import PreTrainedModel, StaticCache

Forward = Callable[..., Any]


@dataclass
class DecodeEngine:
    """A prefilled cache and the tokens to force after it.

    ``forced`` is [batch, tokens] int64: column i is fed at step i. Column 0 is what the stock model predicts after
    the prompt, the others its greedy continuation.
    """

    model: PreTrainedModel
    cache: StaticCache
    prompt_ids: torch.Tensor  # [batch, prompt] int64
    forced: torch.Tensor
    start: Bookmark

    @classmethod
    @torch.no_grad()
    def prepare(
        cls, model: PreTrainedModel, *, batch: int, prompt: int, tokens: int, seed: int
    ) -> DecodeEngine:
        """Prefill ``batch`` random prompts with the stock model and record its greedy continuation.

        Raises:
            UndecodableCache: the model's cache cannot be replayed.
        """
        cache = static_cache(model, cache_length(prompt, tokens))
        generator = torch.Generator().manual_seed(seed)
        vocabulary = model.config.get_text_config(decoder=True).vocab_size
        prompt_ids = torch.randint(vocabulary, (batch, prompt), generator=generator).to(model.device)
        given = as_cache_argument(model, cache)
        token = _argmax(model(prompt_ids, **given, use_cache=True, logits_to_keep=1).logits)
        start = Bookmark.of(cache)
        forced = [token]
        for _ in range(tokens - 1):
            forced.append(token := _argmax(_step(model, token, given)))
        start.restore()
        return cls(model, cache, prompt_ids, torch.cat(forced, dim=1), start)

    @property
    def batch(self) -> int:
        """Sequences decoded at once."""
        return int(self.forced.shape[0])

    @property
    def tokens(self) -> int:
        """Steps available from the start position."""
        return int(self.forced.shape[1])

    @torch.no_grad()
    def decode(self, forward: Forward, steps: int) -> torch.Tensor:
        """Run ``steps`` forced steps from the start; returns the argmax of the last one, [batch, 1]."""
        self.start.restore()
        given = as_cache_argument(self.model, self.cache)
        token = self.forced[:, :1]
        for index in range(steps):
            token = _argmax(_step(forward, self.forced[:, index : index + 1], given))
        return token

    @torch.no_grad()
    def logits(self, forward: Forward, steps: int | None = None) -> torch.Tensor:
        """Teacher-forced logits, [batch, steps, vocabulary] float32. Takes all tokens unless ``steps`` is given."""
        self.start.restore()
        given = as_cache_argument(self.model, self.cache)
        rows = [
            _step(forward, self.forced[:, index : index + 1], given)[:, -1].float()
            for index in range(steps or self.tokens)
        ]
        return torch.stack(rows, dim=1)

    def time(self, forward: Forward, steps: int) -> float:
        """Seconds a step over ``steps`` steps, by :func:`stopwatch`."""
        return stopwatch(lambda: self.decode(forward, steps)) / steps


def clock_name() -> str:
    """``thread_time`` if torch runs one thread, else ``perf_counter``.

    The CPU clock of a thread does not run while another process holds the core, which makes it the one clock that
    can be trusted on a shared machine; but it tells the speed only of work that stays on that thread. Several
    threads are measured by the wall clock, which needs a quiet machine.
    """
    return "thread_time" if torch.get_num_threads() == 1 else "perf_counter"


def stopwatch(work: Callable[[], object]) -> float:
    """Seconds ``work`` takes by the clock of :func:`clock_name`, garbage collection held off."""
    clock: Callable[[], float] = getattr(time, clock_name())
    collecting = gc.isenabled()
    gc.disable()
    try:
        started = clock()
        work()
        return clock() - started
    finally:
        if collecting:
            gc.enable()


def _step(forward: Forward, token: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
    logits: torch.Tensor = forward(token, **given, use_cache=True, logits_to_keep=1).logits
    return logits


def _argmax(logits: torch.Tensor) -> torch.Tensor:
    return logits[:, -1:].argmax(dim=-1)

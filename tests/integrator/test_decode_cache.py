"""Rewinding a cache, and refusing what cannot be decoded from one captured graph."""

from typing import Any

import pytest
import torch
from transformers import DynamicCache, MistralConfig, MistralForCausalLM

from integrator.decode_cache import Bookmark, UndecodableCache, static_cache, why_not_replayable
from integrator.engine import DecodeEngine


def mistral(window: int) -> Any:
    torch.manual_seed(0)
    config = MistralConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=61, sliding_window=window, attn_implementation="eager",
    )  # fmt: skip
    return MistralForCausalLM(config).eval()


@torch.no_grad()
def test_decoding_again_after_a_rewind_gives_the_same_logits(model: Any) -> None:
    engine = DecodeEngine.prepare(model, batch=2, prompt=5, tokens=4, seed=0)
    first = engine.logits(model)
    assert torch.equal(engine.logits(model), first)
    assert torch.equal(engine.decode(model, 4), first[:, -1:].argmax(-1))


@torch.no_grad()
def test_forced_tokens_are_stocks_own_greedy_continuation(model: Any) -> None:
    engine = DecodeEngine.prepare(model, batch=1, prompt=5, tokens=6, seed=0)
    logits = engine.logits(model)
    assert torch.equal(logits[:, :-1].argmax(-1), engine.forced[:, 1:])


def test_bookmark_keeps_tensor_addresses(model: Any) -> None:
    engine = DecodeEngine.prepare(model, batch=1, prompt=5, tokens=4, seed=0)
    position = engine.cache.layers[0].cumulative_length
    engine.decode(model, 3)
    assert int(position) == 8
    engine.start.restore()
    assert engine.cache.layers[0].cumulative_length is position
    assert int(position) == 5


def test_recurrent_states_are_rewound_too() -> None:
    from transformers.cache_utils import LinearAttentionLayer, StaticCache

    layer = LinearAttentionLayer()
    layer.update_recurrent_state(torch.ones(1, 2))
    cache = StaticCache.__new__(StaticCache)
    cache.layers = [layer]
    mark = Bookmark.of(cache)
    layer.update_recurrent_state(torch.zeros(1, 2))
    mark.restore()
    assert torch.equal(layer.recurrent_states[0], torch.ones(1, 2))


def test_a_window_that_holds_everything_becomes_a_plain_layer_with_equal_logits() -> None:
    model = mistral(window=64)
    engine = DecodeEngine.prepare(model, batch=1, prompt=6, tokens=4, seed=0)
    assert not any(engine.cache.is_sliding)
    ids = torch.cat([engine.prompt_ids, engine.forced], dim=1)
    with torch.no_grad():
        expected = model(ids, use_cache=False, logits_to_keep=4).logits
    torch.testing.assert_close(engine.logits(model), expected, rtol=1e-4, atol=1e-4)


def test_a_short_window_is_refused_with_the_remedy() -> None:
    with pytest.raises(UndecodableCache, match=r"sliding window of 8 .*lower --prompt or --tokens"):
        static_cache(mistral(window=8), 16)


def test_which_caches_a_captured_graph_can_replay(model: Any) -> None:
    assert why_not_replayable(static_cache(model, 16)) is None
    assert why_not_replayable(DynamicCache()) == "no static cache"
    assert why_not_replayable(None) == "no static cache"

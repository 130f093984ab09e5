"""op_key must not depend on batch, prompt or cache length; it must depend on what a kernel depends on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extractor.binding import bind
from extractor.cache_argument import as_cache_argument
from extractor.capture import capture_step
from extractor.detect import detect
from extractor.models import LoadedModel
from tests.extractor.conftest import Captured


def keys(found: Captured) -> list[str]:
    return [region.op_key for region in found.detection.regions]


# Lengths are chosen to collide with sizes of the tiny presets: heads 4, head size 32, top-k groups, latents 48.
@pytest.mark.parametrize("name", ["qwen3-tiny", "deepseek-v3-tiny", "qwen3.5-tiny"])
@pytest.mark.parametrize(("batch", "prompt", "cache_len"), [(4, 32, 64), (3, 20, 48), (2, 16, 32)])
def test_op_keys_are_stable(
    name: str, batch: int, prompt: int, cache_len: int, captured: Callable[..., Captured]
) -> None:
    other = captured(name, batch=batch, prompt=prompt, cache_len=cache_len)
    assert keys(other) == keys(captured(name))


def test_exact_keys_tell_shapes_apart(captured: Callable[..., Captured]) -> None:
    one, four = captured("qwen3-tiny"), captured("qwen3-tiny", batch=4)
    pairs = zip(one.detection.regions, four.detection.regions, strict=True)
    assert all(a.exact_key != b.exact_key for a, b in pairs)


def test_another_call_signature_gives_the_same_keys(captured: Callable[..., Captured]) -> None:
    """The integrator's graphs come from calls with other keyword arguments."""
    import torch
    from transformers import StaticCache

    found = captured("qwen3-tiny")
    model, graphs = found.loaded.model, []

    def backend(gm, example_inputs):
        graphs.append((gm, bind(model, gm, example_inputs)))
        return gm.forward

    cache = StaticCache(config=model.config, max_cache_len=64)
    ids = torch.randint(0, 300, (1, 32))
    with torch.no_grad():
        model(ids, **as_cache_argument(model, cache), use_cache=True)
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
        position = torch.tensor([[32]])
        given = as_cache_argument(model, cache)
        compiled(input_ids=ids[:, :1], **given, position_ids=position, return_dict=True)
        torch._dynamo.reset()
    gm, binding = graphs[0]
    assert [region.op_key for region in detect(gm, binding, found.step.dims)] == keys(found)


def test_weights_and_constants_change_the_key(models: Callable[..., LoadedModel]) -> None:
    from extractor.models import load_model

    plain = models("llama-tiny")
    other = load_model("preset:llama-tiny")
    for module in other.model.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = 1e-3
    found = []
    for loaded in (plain, other):
        step = capture_step(loaded.model, "decode", 1, 8, 16)
        regions = detect(step.gm, bind(loaded.model, step.gm, step.example_inputs), step.dims)
        found.append({region.op_key for region in regions if "rmsnorm" in region.family.value})
    assert found[0].isdisjoint(found[1])

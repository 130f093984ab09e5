"""What patching costs: capture and detection once a decode shape, and the overhead of every patched call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from integrator.engine import DecodeEngine
from integrator.graph_patch import GraphPatch
from integrator.seams import seam_finder

LAYERS = 28  # as Qwen3-0.6B; everything else is tiny, so that overhead is nearly all there is


@pytest.fixture(scope="module")
def engine() -> DecodeEngine:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.set_num_threads(1)
    config = Qwen3Config(
        hidden_size=64, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, vocab_size=320,
    )  # fmt: skip
    model: Any = Qwen3ForCausalLM._from_config(config, attn_implementation="eager")
    model = model.to(torch.bfloat16).eval().requires_grad_(False)
    return DecodeEngine.prepare(model, batch=1, prompt=8, tokens=8, seed=0)


def test_capture_and_detection(benchmark: Any, engine: DecodeEngine) -> None:
    """Dynamo's capture of a decode step and our detector, 28 layers."""

    def capture() -> GraphPatch:
        patch = GraphPatch(engine.model, [], seam_finder(engine.model))
        engine.decode(patch.compile(engine.model.forward), 1)
        return patch

    patch = benchmark.pedantic(capture, rounds=3, warmup_rounds=0)
    benchmark.extra_info["detect_and_bind_seconds"] = patch.captures[0].seconds
    assert sum(row.sites for row in patch.captures[0].unserved) > LAYERS


def test_switching_the_active_grafts(benchmark: Any, engine: DecodeEngine) -> None:
    """Making another, already built, variant the active one."""
    patch = GraphPatch(engine.model, [], seam_finder(engine.model))
    engine.decode(patch.compile(engine.model.forward), 1)
    benchmark(patch.set_active, ())


@pytest.mark.parametrize("arm", ["stock", "graph", "guards only"])
def test_one_decode_step(benchmark: Any, engine: DecodeEngine, arm: str) -> None:
    """Stock, the captured graph without grafts, and only what surrounds the graph (guards, call, argmax)."""
    forward: Any = engine.model
    if arm != "stock":
        patch = GraphPatch(engine.model, [], seam_finder(engine.model))
        forward = patch.compile(engine.model.forward)
        engine.decode(forward, 1)
        if arm == "guards only":
            capture = patch.captures[0]
            answers: list[Any] = []
            run = capture._current
            assert run is not None
            capture._current = lambda *args: answers.append(run(*args)) or answers[-1]  # type: ignore[func-returns-value]
            engine.decode(forward, 1)
            capture._current = lambda *args: answers[0]
    steps = engine.tokens
    benchmark.pedantic(engine.decode, (forward, steps), rounds=20, warmup_rounds=2)
    benchmark.extra_info["microseconds_a_step"] = benchmark.stats.stats.min / steps * 1e6


def test_a_bound_kernel_call(benchmark: Any) -> None:
    """One launch of a C++ kernel that does nothing: what every graft pays."""
    from optimizer.candidate import Candidate, Language
    from optimizer.languages.cpp import CppBuilder
    from optimizer.languages.cpp_call import CppKernel

    arguments = "const kg_tensor*, const kg_tensor*, const kg_tensor*, const void*"
    source = f'extern "C" int kg_forward({arguments}) {{ return KG_OK; }}'
    built = CppBuilder().build(Candidate(Language.CPP, source))
    x = torch.zeros(1, 1, 64)
    bound = CppKernel.load(built.path).bind([], [x], [x])
    benchmark(bound, x)
    assert bound.calls > 0

"""Presets and the loader: every shipped shape builds, weights are what their seed says, errors are sentences."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from extractor.models import (
    BadOption,
    LoadedModel,
    NoDevice,
    UnknownModel,
    UnsupportedArchitecture,
    load_model,
)
from extractor.presets import UnknownPreset, load_preset, preset_names
from extractor.random_weights import draw_matrix

TINY = [name for name in preset_names() if name.endswith("-tiny")]


def test_presets_named_in_the_documentation_exist() -> None:
    for name in ("qwen3-0.6b", "qwen3-8b", "llama-3.2-1b", "qwen3.5-hybrid", "deepseek-v3-moe"):
        assert {name, f"{name}-tiny"} <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_preset_configs_are_accepted(name: str) -> None:
    from transformers import AutoConfig

    preset = load_preset(name)
    assert preset.description
    assert AutoConfig.for_model(preset.model_type, **preset.config).model_type == preset.model_type


@pytest.mark.parametrize("name", TINY)
def test_tiny_presets_compute_something_finite(name: str, models: Callable[..., LoadedModel]) -> None:
    loaded = models(name)
    assert loaded.preset
    with torch.no_grad():
        logits = loaded.model(torch.arange(8).reshape(1, 8)).logits
    assert torch.isfinite(logits).all()
    assert 0.1 < float(logits.float().std()) < 10


def test_same_seed_same_weights_other_seed_other_weights() -> None:
    one, two, other = (load_model("preset:qwen3-tiny", seed=seed).model.state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)


def test_a_matrix_can_be_drawn_alone(models: Callable[..., LoadedModel]) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    weight = models("qwen3-tiny").model.get_parameter(name)
    assert torch.equal(weight, draw_matrix(tuple(weight.shape), weight.dtype, 0, name))


def test_norm_weights_are_perturbed_around_their_own_start(models: Callable[..., LoadedModel]) -> None:
    plain = models("qwen3-tiny").model.get_parameter("model.norm.weight")
    centred = models("gemma3-tiny").model.get_parameter("model.norm.weight")
    assert float(plain.float().mean()) == pytest.approx(1.0, abs=0.05)
    assert float(centred.float().mean()) == pytest.approx(0.0, abs=0.05)  # (1 + w) form
    assert float(plain.float().std()) > 0.05


def test_tied_heads_stay_tied(models: Callable[..., LoadedModel]) -> None:
    model = models("qwen3-tiny").model
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_experts_never_run_as_a_python_loop(models: Callable[..., LoadedModel]) -> None:
    assert models("qwen3-moe-tiny").experts == "grouped_mm"
    assert models("qwen3-moe-tiny", experts="batched_mm").experts == "batched_mm"
    assert models("qwen3-tiny").experts == "none"


def test_a_local_checkpoint_loads_and_resolves_by_key(
    models: Callable[..., LoadedModel], tmp_path: Path, a_run
) -> None:
    from extractor.extract import extract
    from extractor.task import load_tasks

    folder = tmp_path / "a checkpoint"
    # Larger than the copying limit, so that a reference is made.
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4, vocab_size=64
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    loaded = load_model(str(folder), dtype="float32")
    assert not loaded.preset
    extract(loaded, a_run, batches=(1,), prompt=8, tokens=8)
    down = next(task for task in load_tasks(a_run.tasks_dir) if task.spec.family.value == "ffn_down")
    assert not (down.folder / "weights.safetensors").exists()
    expected = loaded.model.get_parameter("model.layers.0.mlp.down_proj.weight")
    assert torch.equal(down.weights()["down_proj.weight"], expected)


def test_unknown_preset_names_close_ones() -> None:
    with pytest.raises(UnknownPreset, match=r"did you mean qwen3-0\.6b"):
        load_model("preset:qwen3-06b")


@pytest.mark.parametrize("name", ["./nothing", "/nothing/here", "a/b/c"])
def test_missing_folder(name: str) -> None:
    with pytest.raises(UnknownModel, match="no such folder"):
        load_model(name)


def test_folder_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match=r"no config\.json"):
        load_model(str(tmp_path))


def test_unknown_architecture(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "martian"}), encoding="utf-8")
    with pytest.raises(UnsupportedArchitecture, match="martian"):
        load_model(str(tmp_path))


def test_hub_model_without_a_network(tmp_path: Path) -> None:
    """In a process of its own: the Hub client reads its environment once."""
    import os
    import subprocess
    import sys

    program = (
        "from extractor.errors import KernelgraftError\n"
        "from extractor.models import load_model\n"
        "try: load_model('nobody/nothing')\n"
        "except KernelgraftError as error: print(error)\n"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", env=environment, timeout=120
    )
    assert "HF_HUB_OFFLINE is set" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    "options", [{"dtype": "int4"}, {"attention": "flash"}, {"device": "tpu"}], ids=lambda o: next(iter(o))
)
def test_bad_options(options: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="is not one of"):
        load_model("preset:qwen3-tiny", **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu() -> None:
    with pytest.raises(NoDevice, match="--device cpu"):
        load_model("preset:qwen3-tiny", device="cuda")


def test_a_cache_that_cannot_be_static(models: Callable[..., LoadedModel]) -> None:
    from extractor.capture import CaptureFailed, capture_step

    with pytest.raises(CaptureFailed, match="static cache"):
        capture_step(models("deepseek-v4-tiny").model, "decode", 1, 8, 16)

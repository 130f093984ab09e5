"""Captures are the slow part of these tests (about a second each): they are made once a session and shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from extractor.binding import Binding, bind
from extractor.capture import StepGraph, capture_step
from extractor.detect import Detection, detect_all
from extractor.extract import ExtractReport, extract
from extractor.models import LoadedModel, load_model
from extractor.run_folder import RunFolder
from extractor.task import Task, load_tasks


@dataclass(frozen=True)
class Captured:
    """One step of one tiny preset, bound and cut into regions."""

    loaded: LoadedModel
    step: StepGraph
    binding: Binding
    detection: Detection


@dataclass(frozen=True)
class Extracted:
    """A run folder with tasks, and what extraction said."""

    loaded: LoadedModel
    run: RunFolder
    report: ExtractReport
    tasks: list[Task]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def models() -> Callable[..., LoadedModel]:
    known: dict[tuple[str, str, str, str], LoadedModel] = {}

    def load(
        name: str, dtype: str = "bfloat16", attention: str = "eager", experts: str = "auto"
    ) -> LoadedModel:
        key = (name, dtype, attention, experts)
        if key not in known:
            known[key] = load_model(f"preset:{name}", dtype=dtype, attention=attention, experts=experts)
        return known[key]

    return load


@pytest.fixture(scope="session")
def captured(models: Callable[..., LoadedModel]) -> Callable[..., Captured]:
    known: dict[tuple[object, ...], Captured] = {}

    def capture(
        name: str,
        phase: str = "decode",
        *,
        batch: int = 1,
        prompt: int = 32,
        cache_len: int = 64,
        attention: str = "eager",
        experts: str = "auto",
    ) -> Captured:
        key = (name, phase, batch, prompt, cache_len, attention, experts)
        if key not in known:
            loaded = models(name, attention=attention, experts=experts)
            step = capture_step(loaded.model, phase, batch, prompt, cache_len)
            binding = bind(loaded.model, step.gm, step.example_inputs)
            known[key] = Captured(loaded, step, binding, detect_all(step.gm, binding, step.dims))
        return known[key]

    return capture


@pytest.fixture(scope="session")
def extracted(
    models: Callable[..., LoadedModel], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Extracted]:
    known: dict[tuple[str, str], Extracted] = {}

    def run(name: str, dtype: str = "bfloat16") -> Extracted:
        if (name, dtype) not in known:
            loaded = models(name, dtype)
            folder = RunFolder(tmp_path_factory.mktemp("run") / "with a space")
            report = extract(loaded, folder, batches=(2,), prompt=24, tokens=20)
            known[name, dtype] = Extracted(loaded, folder, report, load_tasks(folder.tasks_dir))
        return known[name, dtype]

    return run


@pytest.fixture
def qwen3(extracted: Callable[..., Extracted]) -> Extracted:
    """Tasks of a two-layer Qwen3, batch 2, prefill and decode."""
    return extracted("qwen3-tiny")


@pytest.fixture
def a_run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")

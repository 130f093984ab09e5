"""Rungs: the ways to run the stock model that a patched one has to beat, each behind the same small protocol.

The eager rungs run in this process on the very weights the patched model uses. The Inductor rungs change global
compiler settings and keep packed copies of the weights, so each gets a process of its own (``rung_worker``) that
takes its turn in the same rounds: it decodes only while this process waits for it.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from extractor.errors import KernelgraftError, UsageError
from integrator.engine import DecodeEngine, Forward
from integrator.ledger_schema import Rung

if TYPE_CHECKING:
    from transformers import PreTrainedModel

READY_TIMEOUT = 1200.0  # seconds to load and compile; freezing + max-autotune of 28 layers takes about 100
SAMPLE_TIMEOUT = 300.0  # seconds for one chunk of steps
OFTEN_STRONGEST = (Rung.INDUCTOR_MAX, Rung.INDUCTOR)
"""Compiled rungs, strongest first: those a headline must name when they were not measured."""
COMPILED_ATTENTION = "eager"
"""What the compiled rungs are built with on a CPU: Inductor's decode was 1.18 times faster so than with sdpa
(Qwen3-0.6B, bfloat16, one thread, freezing + max-autotune)."""


class UnknownRung(UsageError):
    """``--rungs`` names something that is no rung."""

    template = "no rung named {name!r}; choose from: {known}"


class RungFailed(KernelgraftError):
    """A rung could not be measured; recorded in the ledger, never fatal."""

    template = "rung {rung} failed: {reason}"


class Arm(Protocol):
    """Anything that takes turns being timed."""

    name: str

    def sample(self, steps: int) -> float:
        """Seconds a step over a chunk of ``steps`` steps from the start position. May raise RungFailed."""


@dataclass
class LocalArm:
    """An arm of this process. ``enter`` prepares its configuration and ``leave`` undoes that, both untimed."""

    name: str
    engine: DecodeEngine
    forward: Forward
    enter: Callable[[], None]
    leave: Callable[[], None] | None = None

    def sample(self, steps: int) -> float:
        self.enter()
        try:
            return self.engine.time(self.forward, steps)
        finally:
            if self.leave is not None:
                self.leave()


@dataclass(frozen=True)
class WorkerSpec:
    """What a rung's own process needs to build the same decode step."""

    rung: str
    model: str
    revision: str | None
    dtype: str
    attention: str
    seed: int
    batch: int
    prompt: int
    tokens: int
    threads: int


class WorkerArm:
    """An Inductor rung in its own process, spoken to in JSON lines."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.name = spec.rung
        self.compile_seconds: float | None = None
        self.peak_rss_bytes: int | None = None
        # Huge pages for its weights too: grafted weights have them, and no comparison shall rest on placement.
        environment = os.environ | {"OMP_NUM_THREADS": str(spec.threads), "THP_MEM_ALLOC_ENABLE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "integrator.rung_worker", json.dumps(asdict(spec))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=environment,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._complaints: deque[str] = deque(maxlen=40)
        self._readers = [
            threading.Thread(target=self._read_answers, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_complaints, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_ready(self) -> None:
        """Block until the model is compiled. Raises RungFailed if that fails or takes too long."""
        self.compile_seconds = self._receive(READY_TIMEOUT)["compile_seconds"]

    def sample(self, steps: int) -> float:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"steps": steps}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise RungFailed(rung=self.name, reason=self._last_words()) from error
        answer = self._receive(SAMPLE_TIMEOUT)
        self.peak_rss_bytes = answer["peak_rss_bytes"]
        return float(answer["seconds"])

    def close(self) -> None:
        """End the process; its memory is free afterwards."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _receive(self, timeout: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty as error:
            self._process.kill()
            raise RungFailed(rung=self.name, reason=f"no answer within {timeout:.0f} s") from error
        if line is None:
            raise RungFailed(rung=self.name, reason=self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        self._readers[1].join()
        words = [line.strip() for line in self._complaints if line.strip()]
        return (words[-1] if words else f"its process ended with status {code}")[:300]

    def _read_answers(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._answers.put(line)
        self._answers.put(None)

    def _read_complaints(self, stream: IO[str]) -> None:
        with stream:
            self._complaints.extend(stream)


def parse_rungs(names: Sequence[str]) -> tuple[Rung, ...]:
    """Rungs by name, in order, once each. Raises UnknownRung."""
    rungs: dict[Rung, None] = {}
    for name in names:
        try:
            rungs[Rung(name)] = None
        except ValueError as error:
            raise UnknownRung(name=name, known=", ".join(Rung)) from error
    return tuple(rungs)


def use_attention(model: PreTrainedModel, implementation: str) -> None:
    """Switch the attention implementation if it is another one now. The weights are untouched.

    Raises:
        RungFailed: the model does not support it.
    """
    if model.config._attn_implementation != implementation:
        try:
            model.set_attn_implementation(implementation)
        except (ValueError, ImportError) as error:
            reason = str(error).partition(". ")[0].partition("\n")[0]
            raise RungFailed(rung=implementation, reason=reason) from error

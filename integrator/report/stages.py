"""``stages.json``: how long each stage of a run took, how much memory it needed, and on which machine.

The front door brackets every stage with :func:`timed_stage`. A stage that is run again replaces its entry; one
that was interrupted keeps the entry of its last whole run.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from extractor.run_folder import write_json
from integrator.report.memory import MemoryWatch
from integrator.report.schema import StageTiming
from optimizer.machine import machine_facts

STAGES_FILE = "stages.json"
SCHEMA_VERSION = 1


class StageLog(BaseModel):
    """What is known of a run's stages. ``machine`` describes the machine the latest stage ran on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    machine: dict[str, str] = Field(default_factory=dict)
    stages: tuple[StageTiming, ...] = ()
    notes: dict[str, str] = Field(default_factory=dict)  # settings no other file of the run holds

    @classmethod
    def load(cls, run_folder: Path) -> StageLog:
        """The log of a run; an absent or unreadable one is empty, for no measurement depends on it."""
        try:
            log = cls.model_validate_json((run_folder / STAGES_FILE).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError):
            return cls()
        return log if log.schema_version == SCHEMA_VERSION else cls()

    def with_stage(self, timing: StageTiming) -> StageLog:
        """This log with one stage's entry replaced or appended."""
        others = tuple(entry for entry in self.stages if entry.stage != timing.stage)
        return self.model_copy(update={"stages": (*others, timing)})

    def save(self, run_folder: Path) -> None:
        """Write the log atomically. Raises RunUnwritable."""
        write_json(run_folder / STAGES_FILE, self)


@contextmanager
def timed_stage(run_folder: Path, name: str, **notes: str) -> Iterator[None]:
    """Measure the body's time and memory, and enter them in the run's log once it has ended well."""
    started = time.monotonic()
    with MemoryWatch() as memory:
        yield
    timing = StageTiming(stage=name, seconds=time.monotonic() - started, peak_bytes=memory.peak_bytes)
    log = StageLog.load(run_folder)
    log = log.model_copy(update={"notes": {**log.notes, **notes}, "machine": describe_machine()})
    log.with_stage(timing).save(run_folder)


def describe_machine() -> dict[str, str]:
    """The machine in a reader's words: what a timing depends on."""
    facts = machine_facts()
    described = {
        "cpu": facts.cpu,
        "cores": str(facts.cores),
        "instructions": ", ".join(facts.isa),
        "caches": f"L2 {facts.l2_bytes >> 10} KiB, L3 {facts.l3_bytes >> 20} MiB",
        "compiler": facts.compiler.version if facts.compiler else "none",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
    }
    return {**described, **_gpus()}


def _gpus() -> dict[str, str]:
    """The GPUs of a process that uses torch; torch is not imported for this alone."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    return {"gpu": ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))}

"""``grafts.json``: the kernels a search accepted, as the integrator reads them.

A task has one record if one candidate is (nearly) the fastest everywhere, else one record per set of workloads.
The source of a record lies in the run folder under ``source_file`` and is verified against ``candidate_sha``
when the file is loaded, so that what is grafted is what was judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from extractor.errors import KernelgraftError
from extractor.families import Family
from extractor.run_folder import write_json
from optimizer.candidate import Candidate, Language

GRAFTS_FILE = "grafts.json"
SCHEMA_VERSION = 1


class CorruptGrafts(KernelgraftError):
    """``grafts.json``, or a source it names, that cannot be trusted."""

    template = "{path}: {problem}; write it again with `kernelgraft optimize`"


class NoGrafts(KernelgraftError):
    """The run has not been optimized yet."""

    template = "{path} does not exist; run `kernelgraft optimize` on this run first"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GraftRecord(_Record):
    """One accepted kernel and the workloads it is to serve.

    ``ratios`` holds, per workload in ``workloads``, eager's median time over the candidate's; ``speedup`` is the
    candidate's calls-weighted ratio over *all* timed workloads of the task, as the judge gave it.
    ``source_file`` is relative to the run folder.
    """

    task_id: str
    op_key: str
    family: Family
    language: Language
    candidate_sha: str
    source_file: str
    workloads: tuple[str, ...]
    rows: dict[str, int]  # M of each workload in ``workloads``
    ratios: dict[str, float]
    speedup: float
    roofline: float | None = None  # share of the machine's roofline, 0..1
    trajectory: int
    turn: int
    policy: str
    notes: dict[str, str] = Field(default_factory=dict)


class GraftFile(_Record):
    """All accepted kernels of a run. ``complete`` is False while the search still runs or was interrupted."""

    schema_version: int = SCHEMA_VERSION
    machine: str  # key of the machine the kernels were judged on
    complete: bool
    grafts: tuple[GraftRecord, ...] = ()

    def save(self, run_folder: Path) -> Path:
        """Write ``grafts.json`` atomically. Raises RunUnwritable on a full or read-only disk."""
        path = run_folder / GRAFTS_FILE
        write_json(path, self)
        return path

    @classmethod
    def load(cls, run_folder: Path) -> GraftFile:
        """Read ``grafts.json`` and verify every source against its hash.

        Raises:
            NoGrafts: there is no such file.
            CorruptGrafts: it does not parse, has another schema version, or a source is missing or changed.
        """
        path = run_folder / GRAFTS_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise NoGrafts(path=path) from error
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptGrafts(path=path, problem=f"it cannot be read ({error})") from error
        try:
            loaded = cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            raise CorruptGrafts(path=path, problem=f"invalid at {where}: {first['msg']}") from error
        if loaded.schema_version != SCHEMA_VERSION:
            problem = f"schema version {loaded.schema_version}, this kernelgraft reads {SCHEMA_VERSION}"
            raise CorruptGrafts(path=path, problem=problem)
        for record in loaded.grafts:
            load_candidate(run_folder, record)
        return loaded

    def for_workload(self, op_key: str, rows: int) -> GraftRecord | None:
        """The kernel to use for an operator at ``rows`` rows (M), or None if none was accepted for it."""
        for record in self.grafts:
            if record.op_key == op_key and rows in record.rows.values():
                return record
        return None


def load_candidate(run_folder: Path, record: GraftRecord) -> Candidate:
    """The record's candidate, read back from disk. Raises CorruptGrafts if its source is missing or changed."""
    path = run_folder / record.source_file
    if not path.resolve().is_relative_to(run_folder.resolve()):
        raise CorruptGrafts(path=run_folder / GRAFTS_FILE, problem=f"{record.source_file} is outside the run")
    try:
        source = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptGrafts(path=path, problem=f"the source cannot be read ({error})") from error
    candidate = Candidate(language=record.language, source=source, notes=record.notes)
    if candidate.sha != record.candidate_sha:
        raise CorruptGrafts(path=path, problem="the source was changed after it was judged")
    return candidate


@dataclass(frozen=True)
class Contender:
    """A correct candidate with at least one clear win: what :func:`choose` picks from.

    ``ratios`` maps every workload it clearly wins on to its speedup there. ``noise`` is, per workload, the 80th
    percentile of its time over the median, less 1; 0 where it is not known.
    """

    sha: str
    ratios: dict[str, float]
    speedup: float
    noise: dict[str, float] = field(default_factory=dict)


# A candidate within 2 % of the best on a workload may stand in for it; where the best one's own times spread more,
# within that spread, up to 5 %.
NEARLY, NOISE_LIMIT = 0.02, 0.05


def choose(
    contenders: Sequence[Contender], *, weight: Callable[[str], float] = lambda _: 1.0
) -> list[tuple[Contender, tuple[str, ...]]]:
    """Pick few candidates that are together nearly the best on every workload any of them wins.

    Repeatedly takes the candidate that is nearly the best on the most remaining workloads (by ``weight``); ties go
    to the one with the larger calls-weighted speedup. One candidate that is nearly the best everywhere is
    therefore picked alone.
    """
    enough: dict[str, float] = {}
    for workload in {workload for contender in contenders for workload in contender.ratios}:
        best = max(contenders, key=lambda c: c.ratios.get(workload, 0.0))
        margin = max(NEARLY, min(best.noise.get(workload, 0.0), NOISE_LIMIT))
        enough[workload] = best.ratios[workload] / (1.0 + margin)
    remaining = set(enough)
    picked: list[tuple[Contender, tuple[str, ...]]] = []
    while remaining:
        served = {
            contender.sha: sorted(
                w for w, ratio in contender.ratios.items() if w in remaining and ratio >= enough[w]
            )
            for contender in contenders
        }
        winner = max(contenders, key=lambda c: (sum(weight(w) for w in served[c.sha]), c.speedup, c.sha))
        picked.append((winner, tuple(served[winner.sha])))
        remaining -= set(served[winner.sha])
    return picked

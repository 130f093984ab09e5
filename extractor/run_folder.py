"""A run folder: where one model's tasks, search, grafts, ledger and report live on disk.

Every JSON file is written atomically (a temporary file in the same folder, flushed, then renamed), so that a
killed process leaves the old file or the new one, never half of one. One process at a time works in a run
folder; :meth:`RunFolder.lock` holds it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from extractor.errors import KernelgraftError

RUN_SCHEMA_VERSION = 1

Model = TypeVar("Model", bound=BaseModel)


class RunBusy(KernelgraftError):
    """Another process works in the run folder."""

    template = "run folder {path} is in use by process {pid}; wait for it, stop it, or choose another --out"


class RunUnwritable(KernelgraftError):
    """The run folder, or a file in it, cannot be written."""

    template = "cannot write {path}: {problem}"


class RunMissing(KernelgraftError):
    """There is no run at that path."""

    template = "no run in {path}; start one with `kernelgraft extract MODEL --out {path}`"


class CorruptRun(KernelgraftError):
    """A file of the run folder cannot be trusted."""

    template = "run file {path} is damaged ({problem}); {remedy}"


class RunMismatch(KernelgraftError):
    """The folder already holds a run with other settings."""

    template = "run folder {path} was made with {field} = {old}, not {new}; choose another --out"


class RunManifest(BaseModel):
    """``run.json``: what was asked for and with which versions. Lengths are in tokens, ``created`` is UTC."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = RUN_SCHEMA_VERSION
    model: str  # what the user typed: a Hub id, a folder, or preset:NAME
    revision: str | None = None
    dtype: str
    device: str
    attention: str
    batches: tuple[int, ...]
    prompt: int
    tokens: int
    seed: int = 0
    threads: int = 1
    created: str
    versions: dict[str, str] = Field(default_factory=dict)


_IDENTITY = ("model", "revision", "dtype", "device", "attention", "batches", "prompt", "tokens", "seed")


@dataclass(frozen=True)
class RunFolder:
    """A run folder by path. Nothing is touched until :meth:`create`, :meth:`open` or :meth:`lock` is called.

    >>> RunFolder(Path("runs/demo")).tasks_dir.as_posix()
    'runs/demo/tasks'
    """

    path: Path

    @property
    def manifest_path(self) -> Path:
        return self.path / "run.json"

    @property
    def tasks_dir(self) -> Path:
        """One folder a task lies here."""
        return self.path / "tasks"

    @property
    def census_path(self) -> Path:
        return self.path / "census.json"

    @property
    def store_path(self) -> Path:
        """The search's SQLite store."""
        return self.path / "run.sqlite"

    @property
    def sources_dir(self) -> Path:
        """Candidate sources by content hash."""
        return self.path / "sources"

    @property
    def grafts_path(self) -> Path:
        return self.path / "grafts.json"

    @property
    def ledger_path(self) -> Path:
        return self.path / "ledger.json"

    @property
    def report_path(self) -> Path:
        return self.path / "report.json"

    @property
    def page_path(self) -> Path:
        return self.path / "report.html"

    @property
    def figure_path(self) -> Path:
        return self.path / "ledger.png"

    def create(self, manifest: RunManifest) -> RunFolder:
        """Make the folder and write ``run.json``; an existing run with the same settings is kept as it is.

        Raises:
            RunMismatch: the folder holds a run with other settings.
            RunUnwritable: read-only or full disk, or a file is in the way.
        """
        if self.manifest_path.exists():
            present = self.manifest
            for field in _IDENTITY:
                old, new = getattr(present, field), getattr(manifest, field)
                if old != new:
                    raise RunMismatch(path=self.path, field=field, old=old, new=new)
            make_folder(self.tasks_dir)
            return self
        make_folder(self.tasks_dir)
        write_json(self.manifest_path, manifest)
        return self

    def open(self) -> RunFolder:
        """Check that this is a run folder.

        Raises:
            RunMissing: it is not.
            CorruptRun: ``run.json`` cannot be trusted.
        """
        _ = self.manifest
        return self

    @property
    def manifest(self) -> RunManifest:
        """``run.json``, read anew. Raises RunMissing, CorruptRun."""
        if not self.manifest_path.exists():
            raise RunMissing(path=self.path)
        manifest = read_json(self.manifest_path, RunManifest, remedy="extract again into another --out")
        if manifest.schema_version != RUN_SCHEMA_VERSION:
            problem = f"schema version {manifest.schema_version}, this kernelgraft reads {RUN_SCHEMA_VERSION}"
            raise CorruptRun(path=self.manifest_path, problem=problem, remedy="extract again")
        return manifest

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process; the system releases it even after a kill.

        Raises:
            RunBusy: another process holds it.
            RunUnwritable: the folder cannot be written.
        """
        make_folder(self.path)
        lock_path = self.path / ".lock"
        try:
            handle = lock_path.open("a+", encoding="utf-8")
        except OSError as error:
            raise _unwritable(lock_path, error) from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                handle.seek(0)
                raise RunBusy(path=self.path, pid=handle.read().strip() or "unknown") from error
            try:
                handle.truncate(0)
                handle.write(str(os.getpid()))
                handle.flush()
            except OSError as error:
                raise _unwritable(lock_path, error) from error
            yield


def make_folder(path: Path) -> None:
    """Make a folder and its parents. Raises RunUnwritable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def write_json(path: Path, record: BaseModel) -> None:
    """Write a pydantic record atomically as indented UTF-8 JSON. Raises RunUnwritable."""
    write_text(path, record.model_dump_json(indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically. Raises RunUnwritable; the old file, if any, is then unharmed."""
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise _unwritable(path, error) from error


def read_json(path: Path, model: type[Model], remedy: str = "extract again") -> Model:
    """Read a record. Raises CorruptRun naming the file, the first problem and the remedy."""
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptRun(path=path, problem=error, remedy=remedy) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CorruptRun(path=path, problem=f"{where}: {first['msg']}", remedy=remedy) from error


def unwritable(path: Path, error: OSError) -> RunUnwritable:
    """The sentence for a write that failed: what to do about a full or a read-only disk."""
    return _unwritable(path, error)


def _unwritable(path: Path, error: OSError) -> RunUnwritable:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            problem = "no space left; free some or choose another --out"
        case errno.EROFS | errno.EACCES | errno.EPERM:
            problem = "it is read-only for you; choose another --out"
        case errno.EEXIST | errno.ENOTDIR:
            problem = "a file is in the way; choose another --out"
        case _:
            problem = f"{error.strerror or error}; choose another --out"
    return RunUnwritable(path=path, problem=problem)

"""Opening ``run.sqlite``: creation in one step, verification, and SQLite's complaints as one sentence."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

from extractor.errors import KernelgraftError
from extractor.run_folder import RunUnwritable, make_folder, unwritable

STORE_FILE = "run.sqlite"
SCHEMA_VERSION = 1
APPLICATION_ID = 0x6B677266  # "kgrf": tells a run store from any other SQLite file
BUSY_SECONDS = 10.0


class CorruptStore(KernelgraftError):
    """``run.sqlite``, or a source it names, that cannot be trusted. Nothing is deleted or repaired."""

    template = "run store {path}: {problem}; {remedy}"
    REMEDY = (
        "nothing was changed: restore it from a copy, or move it away and run `kernelgraft optimize` again"
    )
    # Moving a source away cures nothing; without the store, it is written again when its kernel is judged again.
    SOURCE_REMEDY = REMEDY.replace("move it away", f"move {STORE_FILE} away")


class NoStore(KernelgraftError):
    """The run has not been optimized yet."""

    template = "{path} does not exist; run `kernelgraft optimize` on this run first"


class BusyStore(KernelgraftError):
    """Another process holds a write lock for longer than the busy timeout."""

    template = "run store {path} is locked by another process; wait for it to end or stop it"


def connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """Open a store in autocommit mode; it is created if there is none (never when ``readonly``).

    Raises:
        NoStore: ``readonly`` and there is none.
        CorruptStore: not SQLite, damaged, another program's, or another schema version.
        RunUnwritable: read-only or full disk.
    """
    if not path.exists():
        if readonly:
            raise NoStore(path=path)
        _create(path)
    # WAL needs a writable folder even for readers, unless nobody can be writing.
    sealed = (
        readonly and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    )
    uri = f"{path.resolve().as_uri()}?mode={'ro' if readonly else 'rw'}" + ("&immutable=1" if sealed else "")
    with explained(path):
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            _verify(connection, path)
            connection.execute("PRAGMA foreign_keys = ON")
            if not readonly:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
    return connection


def _create(path: Path) -> None:
    """Make an empty store aside and rename it into place, so that no kill leaves half of one under its name."""
    make_folder(path.parent)
    draft = path.with_name(f".{STORE_FILE}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    script = resources.files("optimizer").joinpath("schema.sql").read_text(encoding="utf-8")
    with explained(path):
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as db:
                db.executescript(f"BEGIN;\n{script}\nINSERT INTO schema_version VALUES ({SCHEMA_VERSION});")
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute("COMMIT")
            os.replace(draft, path)
        finally:
            for leftover in (draft, draft.with_name(f"{draft.name}-journal")):
                leftover.unlink(missing_ok=True)


def _verify(db: sqlite3.Connection, path: Path) -> None:
    """Refuse files that are not a run store of this schema version."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if pages == 0:
        raise CorruptStore(path=path, problem="the file is empty", remedy=CorruptStore.REMEDY)
    if application != APPLICATION_ID:
        problem = "this SQLite file belongs to another program"
        raise CorruptStore(path=path, problem=problem, remedy=CorruptStore.REMEDY)
    tables = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'").fetchone()[0]
    row = db.execute("SELECT version FROM schema_version").fetchone() if tables else None
    version = row[0] if row else "unknown"
    if version != SCHEMA_VERSION:
        problem = f"schema version {version}, this kernelgraft reads {SCHEMA_VERSION}"
        remedy = "use the version of kernelgraft that wrote it, or another --out"
        raise CorruptStore(path=path, problem=problem, remedy=remedy)


_UNWRITABLE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's complaints about the file into one sentence; anything else is a bug and passes through."""
    try:
        yield
    except sqlite3.Error as error:
        primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if primary in _UNWRITABLE:
            raise RunUnwritable(
                path=path, problem=f"{error}; free some space or choose another --out"
            ) from error
        if primary in _CORRUPT:
            raise CorruptStore(path=path, problem=str(error), remedy=CorruptStore.REMEDY) from error
        if primary in _BUSY:
            raise BusyStore(path=path) from error
        raise
    except OSError as error:
        raise unwritable(path, error) from error

"""The run store: every completion, candidate, verdict and turn of a search, safe against a kill at any point.

Layout below the run folder: ``run.sqlite`` (WAL) and ``sources/<sha>.<ext>`` (content addressed, written before
the row that names them). Each step of a turn is one transaction: first the completion and what was parsed out of
it, then the verdict. A killed search therefore loses at most the step in flight, and a completion that was paid
for is judged, not asked for again, when the run is resumed.

A *search* is keyed by everything that must be equal for its turns to be comparable (:class:`SearchKey`); a
*verdict* by operator, candidate, machine and judge settings, so that no source is judged twice.
"""

from __future__ import annotations

import json
import sqlite3
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from extractor.run_folder import make_folder, write_text
from extractor.task import Task
from optimizer.candidate import Candidate, Language
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.policies.protocol import Completion, StopReason, Turn
from optimizer.store_file import STORE_FILE, CorruptStore, connect, explained

SOURCES_FOLDER = "sources"
EXTENSIONS = {Language.CPP: "cpp", Language.TRITON: "py", Language.CUDA: "py"}


class TrajectoryState(StrEnum):
    """Where a trajectory stands. Whether an open one has turns left depends on the budget asked for."""

    OPEN = "open"
    EXHAUSTED = "exhausted"  # the policy has nothing new to propose; final
    FAILED = "failed"  # the policy failed for good; the failed turn is tried again on resume


@dataclass(frozen=True)
class SearchKey:
    """What must be equal for turns to belong to one search.

    ``settings`` is a hash over the judge's settings and the task's exact workloads.
    """

    op_key: str
    policy: str
    language: Language
    machine: str
    settings: str
    seed: int


@dataclass(frozen=True)
class Trajectory:
    """A stored trajectory: its finished turns, and the turn whose completion still awaits judging, if any."""

    index: int
    state: TrajectoryState
    turns: int  # finished ones
    pending: Candidate | None = None
    pending_summary: str = ""


class RunStore:
    """Use as a context manager; one writer at a time (the run folder's lock sees to that), any number of readers.

    >>> with RunStore.open(Path("runs/demo")) as store:  # doctest: +SKIP
    ...     store.search(task, key, trajectories=4, turns=4)
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self.path = folder / STORE_FILE
        self._db = connection

    @classmethod
    def open(cls, folder: Path, *, readonly: bool = False) -> RunStore:
        """Open the store of a run folder; it is created if there is none (never when ``readonly``).

        Raises:
            NoStore: ``readonly`` and there is none.
            CorruptStore: not SQLite, damaged, another program's, or another schema version.
            RunUnwritable: read-only or full disk.
        """
        return cls(folder, connect(folder / STORE_FILE, readonly=readonly))

    def close(self) -> None:
        """Close the connection; the last one to close folds the write-ahead log into the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with explained(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def query(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple]:
        """All rows of a SELECT. For reports: see ``schema.sql`` for the tables."""
        with explained(self.path):
            return self._db.execute(sql, parameters).fetchall()

    # Searches and trajectories

    def find_search(self, key: SearchKey) -> int | None:
        """Id of the search with this key, or None."""
        rows = self.query(
            "SELECT id FROM searches WHERE op_key = ? AND policy = ? AND language = ? AND machine = ?"
            " AND settings = ? AND seed = ?",
            astuple(key),
        )
        return rows[0][0] if rows else None

    def search(
        self, task: Task, key: SearchKey, *, trajectories: int, turns: int, settings_json: str = "{}"
    ) -> int:
        """Id of the search with this key, created if new; a larger budget than before extends it."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO tasks VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (key.op_key, task.id, task.spec.family.value),
            )
            db.execute(
                "INSERT INTO searches (op_key, policy, language, machine, settings, seed, settings_json,"
                " planned_trajectories, planned_turns, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET"
                " planned_trajectories = max(planned_trajectories, excluded.planned_trajectories),"
                " planned_turns = max(planned_turns, excluded.planned_turns)",
                (*astuple(key), settings_json, trajectories, turns, time.time()),
            )
            search = self.find_search(key)
            assert search is not None
            db.executemany(
                "INSERT INTO trajectories (search, trajectory, state) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [(search, index, TrajectoryState.OPEN) for index in range(trajectories)],
            )
        return search

    def trajectories(self, search: int) -> list[Trajectory]:
        """All trajectories of a search, by index."""
        rows = self.query(
            "SELECT t.trajectory, t.state, coalesce(sum(u.done), 0) FROM trajectories t"
            " LEFT JOIN turns u ON u.search = t.search AND u.trajectory = t.trajectory"
            " WHERE t.search = ? GROUP BY t.trajectory ORDER BY t.trajectory",
            (search,),
        )
        awaiting = {
            trajectory: (sha, Language(language), notes, summary)
            for trajectory, sha, language, notes, summary in self.query(
                "SELECT u.trajectory, u.sha, c.language, u.notes, u.summary FROM turns u"
                " JOIN candidates c ON c.sha = u.sha WHERE u.search = ? AND u.done = 0",
                (search,),
            )
        }
        found = []
        for index, state, done in rows:
            pending, summary = None, ""
            if index in awaiting:
                sha, language, notes, summary = awaiting[index]
                pending = self.candidate(sha, language, json.loads(notes))
            found.append(Trajectory(index, TrajectoryState(state), done, pending, summary))
        return found

    def turns(self, search: int, trajectory: int) -> tuple[Turn, ...]:
        """The finished turns of a trajectory, sources and verdicts included."""
        rows = self.query(
            "SELECT u.turn, u.sha, c.language, u.notes, u.summary, u.failure, v.body FROM turns u"
            " LEFT JOIN candidates c ON c.sha = u.sha LEFT JOIN verdicts v ON v.id = u.verdict"
            " WHERE u.search = ? AND u.trajectory = ? AND u.done = 1 ORDER BY u.turn",
            (search, trajectory),
        )
        return tuple(
            Turn(
                index=turn,
                candidate=self.candidate(sha, Language(language), json.loads(notes)) if sha else None,
                verdict=self._verdict(body) if body else None,
                summary=summary or failure,
            )
            for turn, sha, language, notes, summary, failure, body in rows
        )

    def end_trajectory(self, search: int, trajectory: int, state: TrajectoryState, detail: str = "") -> None:
        """Record why a trajectory ended before its budget did, or (OPEN) that it is taken up again."""
        with self._transaction() as db:
            db.execute(
                "UPDATE trajectories SET state = ?, detail = ? WHERE search = ? AND trajectory = ?",
                (state, detail, search, trajectory),
            )

    # Turns

    def record_completion(
        self,
        search: int,
        trajectory: int,
        turn: int,
        completion: Completion,
        *,
        seed: int,
        seconds: float,
        candidate: Candidate | None,
        failure: str = "",
        summary: str = "",
    ) -> None:
        """Store what the policy answered. With a candidate the turn awaits its verdict, without one it is finished.

        A completion that says ERROR leaves the turn unfinished: it is replaced when the turn is tried again.
        """
        if candidate is not None:
            self._put_source(candidate)
        notes = json.dumps(completion.notes, sort_keys=True)
        now = time.time()
        with self._transaction() as db:
            if candidate is not None:
                db.execute(
                    "INSERT INTO candidates VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                    (candidate.sha, candidate.language, now),
                )
            where = (search, trajectory, turn)
            sha = candidate.sha if candidate else None
            done = candidate is None and completion.stop_reason is not StopReason.ERROR
            db.execute("DELETE FROM completions WHERE (search, trajectory, turn) = (?, ?, ?)", where)
            db.execute(
                "INSERT INTO turns (search, trajectory, turn, sha, failure, summary, notes, done, created)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET sha = excluded.sha,"
                " failure = excluded.failure, summary = excluded.summary, notes = excluded.notes,"
                " done = excluded.done, created = excluded.created",
                (*where, sha, failure, summary, notes, done, now),
            )
            db.execute(
                "INSERT INTO completions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *where,
                    seed,
                    completion.stop_reason,
                    seconds,
                    completion.text,
                    _packed("i", completion.token_ids),
                    _packed("f", completion.logprobs),
                ),
            )

    def record_verdict(
        self,
        search: int,
        trajectory: int,
        turn: int,
        key: SearchKey,
        candidate: Candidate,
        verdict: Verdict,
        *,
        seconds: float,
    ) -> None:
        """Store a fresh verdict and finish its turn, in one transaction."""
        identity = (key.op_key, candidate.sha, key.machine, key.settings)
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT INTO verdicts (op_key, sha, machine, settings, outcome, speedup, roofline, seconds, created,"
                " body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *identity,
                    verdict.outcome,
                    verdict.speedup,
                    verdict.roofline,
                    seconds,
                    time.time(),
                    verdict.model_dump_json(),
                ),
            )
            _finish(db, search, trajectory, turn, cursor.lastrowid, reused=False)

    def reuse_verdict(self, search: int, trajectory: int, turn: int, verdict_id: int) -> None:
        """Finish a turn whose candidate had been judged before."""
        with self._transaction() as db:
            _finish(db, search, trajectory, turn, verdict_id, reused=True)

    def known_verdict(self, key: SearchKey, sha: str) -> tuple[int, Verdict] | None:
        """The cached verdict of a source on this task, machine and judge settings, with its id."""
        rows = self.query(
            "SELECT id, body FROM verdicts WHERE op_key = ? AND sha = ? AND machine = ? AND settings = ?"
            " AND outcome <> ?",
            (key.op_key, sha, key.machine, key.settings, Outcome.SANDBOX_FAILED),
        )
        return (rows[0][0], self._verdict(rows[0][1])) if rows else None

    def correct_verdicts(self, key: SearchKey) -> dict[str, Verdict]:
        """By source hash, the verdicts of all correct candidates on this task, machine and judge settings."""
        rows = self.query(
            "SELECT sha, body FROM verdicts WHERE op_key = ? AND machine = ? AND settings = ? AND outcome = ?",
            (key.op_key, key.machine, key.settings, Outcome.CORRECT),
        )
        return {sha: self._verdict(body) for sha, body in rows}

    def _verdict(self, body: str) -> Verdict:
        try:
            return Verdict.model_validate_json(body)
        except ValidationError as error:
            problem = f"a verdict does not parse ({error.errors()[0]['msg']})"
            raise CorruptStore(path=self.path, problem=problem, remedy=CorruptStore.REMEDY) from error

    # Sources

    def source_file(self, sha: str, language: Language) -> str:
        """Path of a source relative to the run folder."""
        return f"{SOURCES_FOLDER}/{sha}.{EXTENSIONS[language]}"

    def candidate(self, sha: str, language: Language, notes: dict[str, str] | None = None) -> Candidate:
        """A stored candidate. Raises CorruptStore if its source is missing or was changed."""
        path = self.folder / self.source_file(sha, language)
        try:
            candidate = Candidate(language, path.read_bytes().decode(), notes or {})
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptStore(
                path=path, problem=f"cannot be read ({error})", remedy=CorruptStore.SOURCE_REMEDY
            ) from error
        if candidate.sha != sha:
            raise CorruptStore(
                path=path, problem="was changed after judging", remedy=CorruptStore.SOURCE_REMEDY
            )
        return candidate

    def _put_source(self, candidate: Candidate) -> None:
        path = self.folder / self.source_file(candidate.sha, candidate.language)
        data = candidate.source.encode()
        if not path.exists() or path.read_bytes() != data:
            make_folder(path.parent)
            write_text(path, candidate.source)


def _finish(
    db: sqlite3.Connection, search: int, trajectory: int, turn: int, verdict: int | None, *, reused: bool
) -> None:
    db.execute(
        "UPDATE turns SET verdict = ?, reused = ?, done = 1 WHERE (search, trajectory, turn) = (?, ?, ?)",
        (verdict, reused, search, trajectory, turn),
    )


def _packed(code: str, values: tuple[int, ...] | tuple[float, ...] | None) -> bytes | None:
    return None if values is None else array(code, values).tobytes()

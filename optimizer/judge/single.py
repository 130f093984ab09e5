"""Judge one file on one task: what ``kernelgraft judge TASK CANDIDATE`` does.

TASK is a task folder that ``extract`` wrote, or a KernelBench file (``Model``, ``get_inputs``, ``get_init_inputs``),
which becomes a task folder for the time of judging. The reference is trusted; the candidate is not.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from extractor.errors import KernelgraftError
from extractor.plain_text import one_line
from extractor.task import TASK_SIDECAR, TASK_SOURCE, Task
from extractor.versions import version_of
from optimizer.candidate import Candidate, Language
from optimizer.judge.judge import Judge, require_device
from optimizer.judge.screens import MAX_SOURCE_BYTES
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.verdict import Verdict, WorkloadResult

_NATIVE_SUFFIXES = {".cpp", ".cc", ".cxx"}
_CUDA_MARKS = ("load_inline", "cpp_extension")
_OUR_COPY = re.compile(r"\bcandidate\.(?:cpp|py)\b")
_A_TASK = "a task is a folder (such as runs/NAME/tasks/ID) or a KernelBench .py file"
_NAMED_TASKS = 4  # of a run, in a sentence


class NoSuchTask(KernelgraftError):
    """TASK is neither a task folder nor a KernelBench file."""

    template = "{path} {problem}"


class UnreadableCandidate(KernelgraftError):
    """CANDIDATE cannot be read or its language cannot be told."""

    template = "candidate {path}: {problem}"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class JudgedWorkload(_Record):
    """What one workload's times come to, in the regime that decides; None where it was not timed."""

    workload: str
    speedup: float | None
    noise: float | None  # the wider side's (p80 - p20) / median
    clear_win: bool  # p80(candidate) < p20(eager) / 1.03

    @classmethod
    def of(cls, result: WorkloadResult) -> JudgedWorkload:
        """Derived from the stored result."""
        return cls(
            workload=result.workload, speedup=result.speedup, noise=result.noise, clear_win=result.clear_win
        )


class JudgedFile(_Record):
    """The answer of ``kernelgraft judge --json``."""

    task: str
    candidate: str  # its path; bytes that are no UTF-8 are spelled out
    sha256: str
    language: Language
    tolerance: str
    health: tuple[str, ...]  # what is suspicious about the task; a verdict on a sick task proves little
    threads: int
    unit: Literal["us"] = "us"  # of all times of the verdict's workloads
    kernelgraft: str  # the version that judged
    workloads: tuple[JudgedWorkload, ...]
    winning_workloads: tuple[str, ...]
    verdict: Verdict


@contextmanager
def open_task(path: Path, device: str = "cpu") -> Iterator[Task]:
    """The task at ``path``, on disk as long as the context lasts. A file of a task folder stands for the folder.

    Raises:
        NoSuchTask, CorruptTask: there is none, or it cannot be trusted.
        NotKernelBench: the file is no KernelBench file.
    """
    folder = path if path.is_dir() else path.parent
    # A folder's task.py has a Model too, but without task.json it would be another task, of one workload.
    if path.is_dir() or path.name == TASK_SIDECAR or (path.name == TASK_SOURCE and _is_task(folder)):
        if not _is_task(folder):
            raise NoSuchTask(path=path, problem=_no_task(path))
        yield Task.load(folder)
        return
    if path.suffix != ".py" or not path.is_file():
        raise NoSuchTask(path=path, problem=_no_task(path))
    from extractor.kernelbench import import_kernelbench

    with tempfile.TemporaryDirectory(prefix="kernelgraft-task-") as scratch:
        yield import_kernelbench(path, Path(scratch) / path.stem, device=device)


def read_candidate(path: Path, language: Language | None = None) -> Candidate:
    """The candidate in a file; its language is told by suffix and content unless given.

    Raises:
        UnreadableCandidate: no such file, no regular file, too large, not text, or of no known language.
    """
    try:
        source = _read_at_most(path, MAX_SOURCE_BYTES).decode("utf-8")
    except OSError as error:
        raise UnreadableCandidate(path=path, problem=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableCandidate(path=path, problem="is not UTF-8 text") from error
    if language is None:
        language = _language(path, source)
    return Candidate(language, source)


def judge_file(task: Path, candidate: Path, settings: JudgeSettings, language: Language | None) -> JudgedFile:
    """One verdict. Raises what :func:`open_task`, :func:`read_candidate` and :class:`Judge` raise."""
    if candidate.is_dir() and not task.is_dir():
        raise UnreadableCandidate(path=candidate, problem="is a folder; the order is TASK CANDIDATE")
    read = read_candidate(candidate, language)
    require_device(settings.device)
    with open_task(task, settings.device) as opened, Judge(opened, settings) as judge:
        verdict = _under_its_name(judge.evaluate(read), candidate)
        return JudgedFile(
            task=opened.id,
            candidate=one_line(str(candidate), 4096),
            sha256=read.sha,
            language=read.language,
            tolerance=settings.profile.value,
            health=tuple(one_line(flag) for flag in opened.spec.health.flags),
            threads=settings.threads,
            kernelgraft=version_of("kernelgraft"),
            workloads=tuple(JudgedWorkload.of(result) for result in verdict.results),
            winning_workloads=verdict.winning_workloads,
            verdict=verdict,
        )


def _under_its_name(verdict: Verdict, path: Path) -> Verdict:
    """With the file's own name where compiler and interpreter name the copy that they were given."""
    name = one_line(path.name, 255)
    texts = {"reason": verdict.reason, "log": verdict.log}
    return verdict.model_copy(
        update={key: _OUR_COPY.sub(lambda _: name, text) for key, text in texts.items()}
    )


def _is_task(folder: Path) -> bool:
    return (folder / TASK_SIDECAR).is_file()


def _no_task(path: Path) -> str:
    """Why ``path`` is no task, and what would be."""
    if not path.exists():
        return f"does not exist; {_A_TASK}"
    if path.suffix in _NATIVE_SUFFIXES:
        return "is a kernel, not a task; the order is TASK CANDIDATE"
    inner = path if path.name == "tasks" else path / "tasks"
    names = sorted(sidecar.parent.name for sidecar in inner.glob(f"*/{TASK_SIDECAR}"))
    if names:
        listed = ", ".join(names[:_NAMED_TASKS]) + (", ..." if len(names) > _NAMED_TASKS else "")
        return f"is no task, but holds {len(names)}: {listed}; say {inner / names[0]}"
    return f"is no task; {_A_TASK}"


def _read_at_most(path: Path, size: int) -> bytes:
    """A regular file's bytes, of which there may be ``size``: a pipe could block, a device never end.

    Raises:
        OSError, UnreadableCandidate: it cannot be opened, is no regular file, or is larger.
    """
    # Without O_NONBLOCK, opening a pipe that nobody writes to waits for ever.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UnreadableCandidate(path=path, problem="is no regular file")
        data = file.read(size + 1)
    if len(data) > size:
        raise UnreadableCandidate(path=path, problem=f"is over {size >> 10} KiB, too large for a candidate")
    return data


def _language(path: Path, source: str) -> Language:
    if path.suffix in _NATIVE_SUFFIXES:
        return Language.CPP
    if path.suffix == ".py":
        return Language.CUDA if any(mark in source for mark in _CUDA_MARKS) else Language.TRITON
    problem = (
        f"its suffix {path.suffix or '(none)'} names no language: .cpp is C++, .py is Triton or CUDA "
        "(a KernelBench file with ModelNew); or say --language"
    )
    raise UnreadableCandidate(path=path, problem=problem)

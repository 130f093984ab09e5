"""The judge: one candidate in, one verdict out. Screen, build, check, time, profile; the first failure is the verdict.

A judge is opened once per task and kept while many candidates are judged: trials, right answers and the eager side are
prepared on opening. A *bench* knows how candidates of one kind of language are built and run on the judge's device;
it is opened for the first candidate that needs it. Every candidate gets a fresh process behind walls. See
``docs/judge.md`` for all rules.

>>> with Judge(task, JudgeSettings()) as judge:  # doctest: +SKIP
...     judge.evaluate(Candidate(Language.CPP, source)).outcome
<Outcome.CORRECT: 'correct'>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Protocol, runtime_checkable

from extractor.errors import KernelgraftError
from extractor.models import NoDevice
from extractor.task import TASK_SIDECAR, CorruptTask, Task
from optimizer.candidate import Candidate, Language
from optimizer.judge.allocator import keep_pages
from optimizer.judge.course import Course
from optimizer.judge.numeric_state import written_down
from optimizer.judge.python.spawn import WarmPool
from optimizer.judge.screens import screen
from optimizer.judge.settings import JudgeSettings, Profile
from optimizer.judge.subjects import Subjects
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.machine import machine_facts

__all__ = ["Judge", "JudgeSettings", "Profile", "UnknownWorkload", "UnsupportedLanguage"]


class UnknownWorkload(KernelgraftError):
    """The settings name a workload the task does not have."""

    template = "task {task} has no workload {workload!r}; it has: {known}"


class UnsupportedLanguage(KernelgraftError):
    """This judge has no way to build or run candidates of that language on its device."""

    template = "candidates in {language} cannot be judged on {device}; {remedy}"


class Bench(Protocol):
    """Judges screened candidates of one kind against the judge's subjects."""

    def evaluate(self, candidate: Candidate) -> Verdict:
        """Build, check, time and profile one candidate. Whatever it does is a verdict."""
        ...


@runtime_checkable
class BuildsAhead(Bench, Protocol):
    """A bench that compiles the next candidates while one is measured."""

    def evaluate_many(self, candidates: Iterable[Candidate]) -> Iterator[Verdict]:
        """Verdicts in the candidates' order."""
        ...


class Judge:
    """Judges candidates for one task. A context manager; use it from one thread.

    ``pool`` holds warm processes for Python candidates that judges of several tasks share; without it a judge starts
    and ends its own.

    Raises (on entering):
        UnknownWorkload: ``settings.timed_workloads`` names one the task does not have.
        NotEnoughMemory: the task's tensors and their copies do not fit.
        CorruptTask: its reference does not run on what its sidecar describes.
    """

    def __init__(
        self, task: Task, settings: JudgeSettings | None = None, *, pool: WarmPool | None = None
    ) -> None:
        self.task = task
        self._pool = pool
        self.settings = settings or JudgeSettings()
        self._subjects: Subjects | None = None
        self._benches: dict[str, Bench] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Judge:
        known = [workload.id for workload in self.task.spec.workloads]
        for name in self.settings.timed_workloads:
            if name not in known:
                raise UnknownWorkload(task=self.task.id, workload=name, known=", ".join(known))
        keep_pages()
        with written_down(self.settings.threads), _trusting(self.task):
            self._subjects = Subjects(self.task, self.settings, machine_facts())
        self._stack.callback(self._subjects.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._benches.clear()
        self._stack.close()
        self._subjects = None

    def evaluate(self, candidate: Candidate) -> Verdict:
        """Judge one candidate. Whatever it does is a verdict, never an exception.

        Raises:
            UnsupportedLanguage: candidates of this language cannot be judged on this device.
            NoCompiler, BuildCacheUnusable: its language cannot be built here.
        """
        require_judgeable(candidate.language, self.settings.device)
        refusal = screen(candidate) if self.settings.screening else None
        if refusal is not None:
            return Course(device=self.settings.device).verdict(Outcome.REFUSED, refusal.reason)
        return self._bench(candidate.language).evaluate(candidate)

    def evaluate_many(self, candidates: Iterable[Candidate]) -> Iterator[Verdict]:
        """Judge several, verdicts in their order. On a GPU the next ones are compiled while one is measured."""
        if self.settings.device == "cpu":
            yield from map(self.evaluate, candidates)
            return
        screened: list[Verdict | None] = []
        passed: list[Candidate] = []
        for candidate in candidates:
            require_judgeable(candidate.language, self.settings.device)
            refusal = screen(candidate) if self.settings.screening else None
            course = Course(device=self.settings.device)
            screened.append(course.verdict(Outcome.REFUSED, refusal.reason) if refusal is not None else None)
            passed += [] if refusal is not None else [candidate]
        bench = self._bench(passed[0].language) if passed else None
        judged = bench.evaluate_many(passed) if isinstance(bench, BuildsAhead) else map(self.evaluate, passed)
        for verdict in screened:
            yield verdict if verdict is not None else next(judged)

    @property
    def subjects(self) -> Subjects:
        """What candidates are measured against. Only while the judge is open."""
        if self._subjects is None:
            raise RuntimeError("the judge is not open; use it as a context manager")
        return self._subjects

    def _bench(self, language: Language) -> Bench:
        kind = "native" if language is Language.CPP else "python"
        if kind not in self._benches:
            self._benches[kind] = self._open_bench(kind)
        return self._benches[kind]

    def _open_bench(self, kind: str) -> Bench:
        if kind == "native":
            from optimizer.judge.native import NativeBench

            return NativeBench(self.subjects, self.settings)
        if self.settings.device == "cpu":
            from optimizer.judge.python.bench import PythonBench

            return self._stack.enter_context(PythonBench(self.subjects, self.settings, self._pool))
        from optimizer.judge.device.bench import DeviceBench

        return self._stack.enter_context(DeviceBench(self.subjects, self.settings, self._pool))


def require_device(device: str) -> None:
    """Raises NoDevice if torch has no such device here."""
    if device == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise NoDevice(device=device, problem="PyTorch sees no CUDA device here")
    index = device.partition(":")[2] or "0"
    if int(index) >= torch.cuda.device_count():
        raise NoDevice(device=device, problem=f"PyTorch sees {torch.cuda.device_count()} CUDA devices here")


def require_judgeable(language: Language, device: str) -> None:
    """Raises UnsupportedLanguage if candidates of ``language`` cannot run on ``device``."""
    if device == "cpu" and language is Language.CUDA:
        remedy = "they need a GPU: use --device cuda on a machine that has one"
    elif device != "cpu" and language is Language.CPP:
        remedy = "C++ kernels are for the CPU: use --device cpu, or language triton or cuda"
    else:
        return
    raise UnsupportedLanguage(language=language.value, device=device, remedy=remedy)


@contextmanager
def _trusting(task: Task) -> Iterator[None]:
    """What the task's own code and sidecar raise against each other, as CorruptTask.

    Any of these errors can come up: the reference is a program, and its sidecar a file that anyone can edit.
    """
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (
        ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
    ) as error:  # fmt: skip
        first = next(iter(str(error).splitlines()), "")
        problem = f"its program does not run on what {TASK_SIDECAR} says ({type(error).__name__}: {first})"
        raise CorruptTask(path=task.folder, problem=problem) from error

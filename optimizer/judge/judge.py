"""The judge: one candidate in, one verdict out. Screen, build, check, time; the first failure is the verdict.

A judge is opened once per task and kept while many candidates are judged: trials, right answers and the eager side are
prepared on opening. Every candidate gets a fresh worker process behind walls. See ``docs/judge.md`` for all rules.

>>> with Judge(task, JudgeSettings()) as judge:  # doctest: +SKIP
...     judge.evaluate(Candidate(Language.CPP, source)).outcome
<Outcome.CORRECT: 'correct'>
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from extractor.errors import KernelgraftError
from extractor.task import Task
from optimizer.candidate import Candidate, Language
from optimizer.judge.checks import Checker, Deadline
from optimizer.judge.isolation.walls import Wall, WallPlan, system_read_paths
from optimizer.judge.numeric_state import written_down
from optimizer.judge.remote import CandidateFault, SandboxFault, Worker
from optimizer.judge.roofline import SLACK, Roofline
from optimizer.judge.screen import screen
from optimizer.judge.settings import JudgeSettings, Profile
from optimizer.judge.subjects import Subject, Subjects
from optimizer.judge.timing import EMPTY_BATCHES, OVERHEAD_SITES, QUIET_ATTEMPTS, Timer, call_overhead
from optimizer.judge.verdict import Outcome, Verdict, WorkloadResult
from optimizer.languages.cpp import CompileFailed, CppBuilder
from optimizer.languages.cpp_call import CppKernel
from optimizer.machine import machine_facts

__all__ = ["Judge", "JudgeSettings", "Profile", "UnknownWorkload", "UnsupportedLanguage"]

RUNNER = Path(__file__).with_name("runner.cpp")
_EMPTY_KERNEL = """
extern "C" int kg_forward(const kg_tensor*, const kg_tensor*, const kg_tensor*, const void*) { return KG_OK; }
"""
_MEMORY_BEYOND_WEIGHTS = 1 << 30  # address space a worker may use besides shared memory and packed weights


class UnknownWorkload(KernelgraftError):
    """The settings name a workload the task does not have."""

    template = "task {task} has no workload {workload!r}; it has: {known}"


class UnsupportedLanguage(KernelgraftError):
    """This judge has no way to build candidates of that language here."""

    template = "candidates in {language} cannot be judged on this machine; use language cpp"


@dataclass
class _Course:
    """What is known of an evaluation so far; whatever ends it, this goes into the verdict."""

    build_seconds: float = 0.0
    started: float = 0.0
    walls: tuple[Wall, ...] = ()
    results: tuple[WorkloadResult, ...] = ()
    log: str = ""
    state_changes: tuple[str, ...] = field(default=())


class Judge:
    """Judges candidates for one task. A context manager; use it from one thread.

    Raises (on entering):
        UnknownWorkload: ``settings.timed_workloads`` names one the task does not have.
        NoCompiler, BuildCacheUnusable: kernels cannot be built here.
    """

    def __init__(self, task: Task, settings: JudgeSettings | None = None) -> None:
        self.task = task
        self.settings = settings or JudgeSettings()
        self._subjects: Subjects | None = None

    def __enter__(self) -> Judge:
        known = [workload.id for workload in self.task.spec.workloads]
        for name in self.settings.timed_workloads:
            if name not in known:
                raise UnknownWorkload(task=self.task.id, workload=name, known=", ".join(known))
        self._machine = machine_facts()
        self._roofline = Roofline(self._machine)
        cache = Path(self.settings.cache_dir) if self.settings.cache_dir else None
        self._builder = CppBuilder(cache, limit_s=self.settings.build_limit_s, machine=self._machine)
        self._runner = self._builder.build_source(RUNNER.read_text(encoding="utf-8")).path
        with written_down(self.settings.threads):
            self._subjects = Subjects(self.task, self.settings, self._machine)
            self._overhead = self._call_overhead() if self.settings.timing else {}
            self._roofline.prepare(self._subjects)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._subjects is not None:
            self._subjects.close()
            self._subjects = None

    def evaluate(self, candidate: Candidate) -> Verdict:
        """Judge one candidate. Whatever it does is a verdict, never an exception.

        Raises:
            UnsupportedLanguage: candidates of this language cannot be judged here.
        """
        if candidate.language is not Language.CPP:
            raise UnsupportedLanguage(language=candidate.language.value)
        refusal = screen(candidate)
        if refusal is not None:
            return self._verdict(_Course(), Outcome.REFUSED, refusal.reason)
        course = _Course()
        try:
            built = self._builder.build(candidate)
        except CompileFailed as failure:
            course.log = failure.log
            return self._verdict(course, Outcome.BUILD_FAILED, failure.reason)
        course.build_seconds = built.seconds
        course.started = time.perf_counter()
        with written_down(self.settings.threads) as state:
            try:
                verdict = self._run(built.path, course)
            except CandidateFault as fault:
                verdict = self._verdict(course, fault.outcome, fault.reason)
            except SandboxFault as fault:
                verdict = self._verdict(course, Outcome.SANDBOX_FAILED, str(fault))
            changes = state.changes(type(state).capture())
        return verdict.model_copy(update={"state_changes": changes}) if changes else verdict

    @property
    def subjects(self) -> Subjects:
        """What candidates are measured against. Only while the judge is open."""
        if self._subjects is None:
            raise RuntimeError("the judge is not open; use it as a context manager")
        return self._subjects

    @cached_property
    def _empty_library(self) -> Path:
        return self._builder.build_source(_EMPTY_KERNEL).path

    def _call_overhead(self) -> dict[str, float]:
        empty = CppKernel.load(self._empty_library)
        weights = self.subjects.weights.slot(self.subjects.weight_region, 0)
        result = {}
        for subject in self.subjects.subjects:
            if subject.inputs.timing is None:
                continue
            slots = min(subject.inputs.timing.slots, OVERHEAD_SITES)
            inputs = [self.subjects.inputs.slot(subject.inputs.timing, slot) for slot in range(slots)]
            sites = [(empty.bind(weights, tensors, subject.workload.outputs), tensors) for tensors in inputs]
            result[subject.id] = call_overhead(sites)
        return result

    def _run(self, library: Path, course: _Course) -> Verdict:
        subjects, settings = self.subjects, self.settings
        deadline = Deadline(settings.run_limit_s)
        arenas = (subjects.inputs, subjects.weights, subjects.outputs)
        files = [arena.descriptor for arena in arenas]
        with Worker(self._plan(library), files) as worker:
            course.walls = worker.walls
            empty = worker.empty_runs(
                EMPTY_BATCHES, settings.load_limit_s
            )  # nothing of the candidate is there yet
            worker.load(settings.load_limit_s)
            checker = Checker(subjects, settings, worker, deadline)
            course.results = checker.run()
            if not settings.timing:
                return self._verdict(course, Outcome.CORRECT, "all checks passed; not timed")
            for copy in range(1, subjects.copies):
                worker.pack(copy, deadline.left)
            timer = Timer(subjects, checker, self._overhead, empty)
            share: float | None = None
            heaviest = 0.0
            for index, subject in enumerate(subjects.subjects):
                if subject.inputs.timing is None:
                    continue
                timed = timer.time(index, subject)
                result = course.results[index].model_copy(
                    update={"reference": timed.reference, "candidate": timed.candidate}
                )
                course.results = (*course.results[:index], result, *course.results[index + 1 :])
                reached = self._roofline_share(subject, result)
                weight = timed.reference.median * subject.workload.calls
                if weight > heaviest:
                    known = self._roofline.known(subjects, subject)
                    heaviest, share = weight, min(reached, 1.0) if known else None
        speedup = weighted_speedup(subjects, course.results)
        reason = _describe(speedup, course.results)
        return self._verdict(course, Outcome.CORRECT, reason, speedup=speedup, roofline=share)

    def _roofline_share(self, subject: Subject, result: WorkloadResult) -> float:
        """Bound over measured kernel time. Raises CandidateFault if the time beats the bound by more than the slack."""
        assert result.candidate is not None
        spent = max(result.candidate.median - self._overhead[subject.id], 1e-3)
        share = self._roofline.share(self.subjects, subject, spent / 1e6, self.settings.threads)
        if share > SLACK:
            raise CandidateFault(
                Outcome.IMPLAUSIBLE,
                f"workload {subject.id}: {spent:.3g} us a call, but its bytes and products need {share * spent:.3g}",
            )
        return share

    def _plan(self, library: Path) -> dict[str, Any]:
        subjects, settings = self.subjects, self.settings
        regions: list[dict[str, Any]] = []
        for subject in subjects.subjects:
            for inputs, outputs, copies in (
                (subject.inputs.check, subject.outputs.check, 1),
                (subject.inputs.timing, subject.outputs.timing, subjects.copies),
            ):
                if inputs is None or outputs is None:
                    regions.append({"slots": 0})
                    continue
                regions.append(
                    {
                        "slots": inputs.slots,
                        "copies": copies,
                        "inputs": inputs.plan(),
                        "outputs": outputs.plan(),
                    }
                )
        sizes = {
            "inputs": subjects.inputs.size,
            "weights": subjects.weights.size,
            "outputs": subjects.outputs.size,
        }
        shared = sum(sizes.values())
        packed = 2 * subjects.weight_bytes * subjects.copies
        attempts = 1 if settings.threads == 1 else QUIET_ATTEMPTS
        walls = WallPlan(
            read=(*system_read_paths(sys.executable), str(library), str(self._runner)),
            write=(),
            syscalls="worker",
            threads=settings.threads,
            address_space=shared + packed + _MEMORY_BEYOND_WEIGHTS,
            cpu_seconds=int(settings.run_limit_s * settings.threads * attempts) + 5,
        )
        return {
            "library": str(library),
            "runner": str(self._runner),
            "threads": settings.threads,
            "walls": walls.to_json(),
            "sizes": sizes,
            "weights": {"copies": subjects.copies, **_renamed(subjects.weight_region.plan())},
            "regions": regions,
        }

    def _verdict(
        self,
        course: _Course,
        outcome: Outcome,
        reason: str,
        *,
        speedup: float | None = None,
        roofline: float | None = None,
    ) -> Verdict:
        results = course.results
        if outcome is not Outcome.CORRECT:  # a failed candidate has no times, also where some were taken
            results = tuple(r.model_copy(update={"reference": None, "candidate": None}) for r in results)
        return Verdict(
            outcome=outcome,
            reason=reason,
            results=results,
            speedup=speedup,
            roofline=roofline,
            build_seconds=course.build_seconds,
            run_seconds=time.perf_counter() - course.started if course.started else 0.0,
            walls=tuple(wall.name for wall in course.walls if wall.on),
            machine=machine_facts().key,
            log=course.log,
        )


def weighted_speedup(subjects: Subjects, results: tuple[WorkloadResult, ...]) -> float | None:
    """Ratio of the calls-weighted total times over the timed workloads; None if none was timed."""
    reference = candidate = 0.0
    for subject, result in zip(subjects.subjects, results, strict=True):
        if result.reference is not None and result.candidate is not None:
            reference += subject.workload.calls * result.reference.median
            candidate += subject.workload.calls * result.candidate.median
    return reference / candidate if candidate else None


def _renamed(plan: dict[str, object]) -> dict[str, object]:
    return {"bytes": plan["bytes"], "tensors": plan["tensors"]}


def _describe(speedup: float | None, results: tuple[WorkloadResult, ...]) -> str:
    """One sentence: the speedup, and each timed workload's ratio and microseconds."""
    if speedup is None:
        return "all checks passed; no workload is timed"
    parts = [
        f"{r.workload} {r.speedup:.2f}x ({r.reference.median:.4g} -> {r.candidate.median:.4g} us"
        + ("" if r.clear_win else ", no clear win")
        + ")"
        for r in results
        if r.speedup is not None and r.reference is not None and r.candidate is not None
    ]
    return f"correct, {speedup:.2f}x eager: {'; '.join(parts)}"

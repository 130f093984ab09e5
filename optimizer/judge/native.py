"""The bench of native (C++) candidates: build, run in a torch-free worker, check, time on the CPU clock."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from optimizer.candidate import Candidate
from optimizer.judge.checks import Checker, Deadline
from optimizer.judge.course import Course, describe, weighted_speedup
from optimizer.judge.empty_calls import EmptyCalls
from optimizer.judge.isolation.walls import WallPlan, system_read_paths
from optimizer.judge.numeric_state import written_down
from optimizer.judge.profile import NativeTime, native_profile
from optimizer.judge.remote import CandidateFault, SandboxFault, Worker
from optimizer.judge.roofline import SLACK, Roofline
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subject, Subjects
from optimizer.judge.timing import EMPTY_BATCHES, QUIET_ATTEMPTS, Timed, Timer
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.languages.cpp import CompileFailed, CppBuilder
from optimizer.languages.cpp_call import CppKernel
from optimizer.machine import machine_facts

RUNNER = Path(__file__).with_name("runner.cpp")
_EMPTY_KERNEL = """
extern "C" int kg_forward(const kg_tensor*, const kg_tensor*, const kg_tensor*, const void*) { return KG_OK; }
"""
_MEMORY_BEYOND_WEIGHTS = 1 << 30  # address space a worker may use besides shared memory and packed weights


class NativeBench:
    """Judges C++ candidates against prepared subjects. Opening it builds the runner and an empty kernel.

    Raises (on construction):
        NoCompiler, BuildCacheUnusable: kernels cannot be built here.
    """

    def __init__(self, subjects: Subjects, settings: JudgeSettings) -> None:
        self._subjects = subjects
        self._settings = settings
        self._machine = machine_facts()
        self._roofline = Roofline(self._machine)
        cache = Path(settings.cache_dir) if settings.cache_dir else None
        self._builder = CppBuilder(cache, limit_s=settings.build_limit_s, machine=self._machine)
        self._runner = self._builder.build_source(RUNNER.read_text(encoding="utf-8")).path
        with written_down(settings.threads):
            self._empty_calls = self._bound_empty() if settings.timing else {}
            self._roofline.prepare(subjects)

    def evaluate(self, candidate: Candidate) -> Verdict:
        """Build, check and time one screened candidate."""
        course = Course(clock="cpu time" if self._settings.threads == 1 else "wall time")
        try:
            built = self._builder.build(candidate)
        except CompileFailed as failure:
            course.log = failure.log
            return course.verdict(Outcome.BUILD_FAILED, failure.reason)
        course.build_seconds = built.seconds
        course.started = time.perf_counter()
        with written_down(self._settings.threads) as state:
            try:
                verdict = self._run(built.path, course)
            except CandidateFault as fault:
                verdict = course.verdict(fault.outcome, fault.reason)
            except SandboxFault as fault:
                verdict = course.verdict(Outcome.SANDBOX_FAILED, str(fault))
            changes = state.changes(type(state).capture())
        return verdict.model_copy(update={"state_changes": changes}) if changes else verdict

    @cached_property
    def _empty_library(self) -> Path:
        return self._builder.build_source(_EMPTY_KERNEL).path

    def _bound_empty(self) -> dict[str, EmptyCalls]:
        empty = CppKernel.load(self._empty_library)
        subjects = self._subjects
        return {
            subject.id: EmptyCalls.of(empty, subjects, subject)
            for subject in subjects.subjects
            if subject.inputs.timing is not None
        }

    def _run(self, library: Path, course: Course) -> Verdict:
        settings = self._settings
        with self._checked(library, course) as (worker, checker, empty):
            if not settings.timing:
                return course.verdict(Outcome.CORRECT, "all checks passed; not timed")
            share, times = self._time(worker, checker, empty, course)
        if settings.profiling:
            course.profile = native_profile(times)
        speedup = weighted_speedup(self._subjects, course.results)
        return course.verdict(
            Outcome.CORRECT, describe(speedup, course.results), speedup=speedup, roofline=share
        )

    @contextmanager
    def _checked(self, library: Path, course: Course) -> Iterator[tuple[Worker, Checker, list[Any]]]:
        """A worker whose candidate has passed every check, with the cost of empty batches from before it was loaded."""
        subjects, settings = self._subjects, self._settings
        files = [arena.descriptor for arena in (subjects.inputs, subjects.weights, subjects.outputs)]
        with Worker(self._plan(library), files) as worker:
            course.walls = worker.walls
            empty = worker.empty_runs(
                EMPTY_BATCHES, settings.load_limit_s
            )  # nothing of the candidate is there
            worker.load(settings.load_limit_s)
            checker = Checker(subjects, settings, worker, Deadline(settings.run_limit_s))
            course.results = checker.run()
            yield worker, checker, empty

    def _time(
        self, worker: Worker, checker: Checker, empty: list[Any], course: Course
    ) -> tuple[float | None, list[NativeTime]]:
        """Times every timed subject into the course's results; share of the roofline on the heaviest one."""
        subjects = self._subjects
        for copy in range(1, subjects.copies):
            worker.pack(copy, checker.deadline.left)
        timer = Timer(subjects, checker, self._empty_calls, empty)
        native: list[NativeTime] = []
        share: float | None = None
        heaviest = 0.0
        for index, subject in enumerate(subjects.subjects):
            if subject.inputs.timing is None:
                continue
            timed = timer.time(index, subject)
            times = {"reference": timed.reference, "candidate": timed.candidate}
            result = course.results[index].model_copy(update=times)
            course.results = (*course.results[:index], result, *course.results[index + 1 :])
            reached = self._roofline_share(subject, timed)
            native.append(self._native_time(subject, timed))
            weight = timed.reference.median * subject.workload.calls
            if weight > heaviest:
                known = self._roofline.known(subjects, subject)
                heaviest, share = weight, min(reached, 1.0) if known else None
        return share, native

    def _native_time(self, subject: Subject, timed: Timed) -> NativeTime:
        bound = self._roofline.bound(self._subjects, subject, self._settings.threads)
        return NativeTime(
            workload=subject.id,
            microseconds=timed.kernel + timed.overhead,
            overhead=timed.overhead,
            moved=bound.moved,
            moving=bound.moving * 1e6,
            computing=bound.computing * 1e6,
            known=self._roofline.known(self._subjects, subject),
        )

    def _roofline_share(self, subject: Subject, timed: Timed) -> float:
        """Bound over measured kernel time. Raises CandidateFault if the time beats the bound by more than the slack."""
        spent = max(timed.kernel, 1e-3)
        share = self._roofline.share(self._subjects, subject, spent / 1e6, self._settings.threads)
        if share > SLACK:
            raise CandidateFault(
                Outcome.IMPLAUSIBLE,
                f"workload {subject.id}: {spent:.3g} us a call, but its bytes and products need {share * spent:.3g}",
            )
        return share

    def _plan(self, library: Path) -> dict[str, Any]:
        subjects, settings = self._subjects, self._settings
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
        weights = subjects.weight_region.plan()
        return {
            "library": str(library),
            "runner": str(self._runner),
            "threads": settings.threads,
            "walls": walls.to_json(),
            "sizes": sizes,
            "weights": {
                "copies": subjects.copies,
                "bytes": weights["bytes"],
                "tensors": weights["tensors"],
            },
            "regions": regions,
        }

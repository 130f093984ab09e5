"""The bench of Triton and CUDA candidates on a GPU: compile ahead, then check, knock out and time one at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from optimizer.candidate import Candidate
from optimizer.judge import wire
from optimizer.judge.checks import Checker, Deadline
from optimizer.judge.course import Course, describe, weighted_speedup
from optimizer.judge.device.builds import BuildFailed, Built, Workshop, handles
from optimizer.judge.device.confine import measuring_walls, memory_cap, memory_limit
from optimizer.judge.device.roofline import SLACK, DeviceFacts, DeviceRoofline
from optimizer.judge.device.stage import Stage
from optimizer.judge.device.timing import CLOCK, DeviceTimed, DeviceTimer
from optimizer.judge.device.tools import Toolbox
from optimizer.judge.device.watch import Management, ManagementUnavailable, MemoryWatch, memory_walls
from optimizer.judge.numeric_state import written_down
from optimizer.judge.profile import KernelTime, device_profile
from optimizer.judge.python.hints import module_hint
from optimizer.judge.python.knockout import require_custom_kernels
from optimizer.judge.python.plan import worker_plan
from optimizer.judge.python.spawn import PythonWorker, WarmPool
from optimizer.judge.remote import CandidateFault, SandboxFault
from optimizer.judge.settings import JudgeSettings, Profile
from optimizer.judge.subjects import Subject, Subjects
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.languages.cuda import NoCudaCompiler

BUILDERS = 8
_EMPTY_COMMANDS = 5
_NOT_REHEARSED = (
    "it launches a kernel that it did not launch when it was compiled ahead, one call a workload: "
    "which kernels are launched may depend on shapes and dtypes only"
)


class DeviceBench:
    """Judges Python candidates on the subjects' GPU. A context manager; several candidates build while one is measured.

    Args:
        pool: warm processes to share with other benches; without it the bench has its own and ends them.

    Raises (on entering):
        BuildCacheUnusable: the cache folder cannot be written.
    """

    def __init__(self, subjects: Subjects, settings: JudgeSettings, pool: WarmPool | None = None) -> None:
        self._pool = pool or WarmPool()
        self._owned = pool is None
        self._subjects = subjects
        self._settings = settings
        self._facts = DeviceFacts.of(settings.device)
        self._roofline = DeviceRoofline(self._facts)
        self._stack = ExitStack()

    def __enter__(self) -> DeviceBench:
        self._management, self._unwatched = _management(self._settings.device)
        self._open_zygote()
        try:
            self._builders = self._stack.enter_context(ThreadPoolExecutor(BUILDERS, "kernelgraft-build"))
            with written_down(self._settings.threads):
                self._stage = Stage(self._settings.device, 0)
                self._roofline.prepare(self._subjects)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _open_zygote(self) -> None:
        self._zygote = self._pool.zygote(interpret=False)
        self._workshop = Workshop(self._zygote, self._subjects, self._settings, self._facts, self._management)
        workshop = self._workshop
        self._tools = Toolbox(
            self._subjects, self._settings, lambda candidate: workshop.extension_plan(candidate, None)
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._owned:
            self._pool.close()

    def evaluate(self, candidate: Candidate) -> Verdict:
        """Build, check and time one screened candidate."""
        return next(iter(self.evaluate_many([candidate])))

    def evaluate_many(self, candidates: Iterable[Candidate]) -> Iterator[Verdict]:
        """Verdicts in order; up to eight candidates are compiled while one is measured."""
        if not self._zygote.alive:
            self._open_zygote()
        waiting: list[Future[_Prepared]] = [
            self._builders.submit(self._prepare, candidate) for candidate in candidates
        ]
        try:
            for future in waiting:
                yield self._measure(future.result())
        finally:
            for future in waiting:
                future.cancel()

    def _prepare(self, candidate: Candidate) -> _Prepared:
        course = Course(device=self._settings.device, machine=self._facts.key, clock=CLOCK)
        start = time.perf_counter()
        try:
            built = self._workshop.build(candidate)
        except BuildFailed as failure:
            course.log = failure.log
            course.build_seconds = time.perf_counter() - start
            return _Prepared(candidate, course, course.verdict(Outcome.BUILD_FAILED, failure.reason))
        except CandidateFault as fault:
            course.build_seconds = time.perf_counter() - start
            return _Prepared(candidate, course, course.verdict(fault.outcome, fault.reason))
        except (SandboxFault, NoCudaCompiler) as fault:
            return _Prepared(candidate, course, course.verdict(Outcome.SANDBOX_FAILED, str(fault)))
        course.build_seconds = built.seconds
        return _Prepared(candidate, course, None, built)

    def _measure(self, prepared: _Prepared) -> Verdict:
        if prepared.verdict is not None:
            return prepared.verdict
        course, built = prepared.course, prepared.built
        assert built is not None
        course.started = time.perf_counter()
        with written_down(self._settings.threads):
            try:
                verdict = self._run(prepared.candidate, built, course)
            except _TookTooMuch as fault:  # nothing watches it under a tool
                return course.verdict(fault.outcome, fault.reason)
            except CandidateFault as fault:
                verdict = course.verdict(fault.outcome, fault.reason)
            except SandboxFault as fault:
                return course.verdict(Outcome.SANDBOX_FAILED, str(fault))
            finally:
                # Its process is gone; what it may have written to the judge's memory goes now.
                for guard in self._subjects.guards.values():
                    guard.restore()
        return self._tools.examine(prepared.candidate, course, verdict)

    def _run(self, candidate: Candidate, built: Built, course: Course) -> Verdict:
        plan = worker_plan(
            self._subjects,
            self._settings,
            candidate,
            measuring_walls(self._settings, [built.folder, *self._libraries(candidate)]),
            interpret=False,
            memory_cap=memory_cap(self._subjects),
            cache=str(built.folder),
            handles=handles(self._subjects),
            extensions=self._workshop.extension_plan(candidate, None),
        )
        limit = memory_limit(self._subjects)
        with self._zygote.start(plan) as worker:
            course.walls = (*worker.walls, *memory_walls(limit, self._unwatched))
            with MemoryWatch(worker.pid, limit, self._management, self._settings.device) as watch:
                try:
                    return self._judged(worker, course)
                except CandidateFault as fault:
                    if watch.problem:
                        raise _TookTooMuch(Outcome.CRASHED, watch.problem) from fault
                    if "PermissionError" in fault.reason and str(built.folder) in fault.reason:
                        raise CandidateFault(fault.outcome, _NOT_REHEARSED) from fault
                    if fault.outcome is Outcome.WRONG:
                        added = module_hint(worker.launches, worker.unmatched)
                        raise CandidateFault(fault.outcome, fault.reason + added) from fault
                    raise

    def _libraries(self, candidate: Candidate) -> list[Path]:
        described = self._workshop.extension_plan(candidate, None)
        return [Path(described["folder"])] if described else []

    def _judged(self, worker: PythonWorker, course: Course) -> Verdict:
        settings, subjects = self._settings, self._subjects
        empty_ns = self._empty_ns(worker)
        worker.load(settings.load_limit_s)
        checker = Checker(subjects, settings, worker, Deadline(settings.run_limit_s))
        course.results = checker.run()
        self._require_intact("while being checked")
        self._note_state(worker, course)
        share: float | None = None
        remarks: list[str] = []
        if settings.timing:
            for copy in range(1, subjects.copies):
                worker.pack(copy, checker.deadline.left)
            timer = DeviceTimer(subjects, checker, worker, self._stage, empty_ns)
            share, remarks = self._time(timer, course)
            self._require_intact("while being timed")
            self._note_state(worker, course)
            if settings.profiling:
                course.profile = self._profile(worker, checker)
        # Last: what library calls make of outputs that were never computed may break the device's context.
        course.launches = require_custom_kernels(checker, worker)
        if not settings.timing:
            return course.verdict(Outcome.CORRECT, "all checks passed; not timed")
        speedup = weighted_speedup(subjects, course.results)
        reason = "; ".join([describe(speedup, course.results), *remarks])
        return course.verdict(Outcome.CORRECT, reason, speedup=speedup, roofline=share)

    def _empty_ns(self, worker: PythonWorker) -> float:
        """Nanoseconds of a command without a call, before anything of the candidate is there: the least of some."""
        limit = self._settings.load_limit_s
        runs = [
            worker.command(wire.RUN, 1, 0, 0, limit_s=limit, doing="being prepared")
            for _ in range(_EMPTY_COMMANDS)
        ]
        return float(min(run.wall_ns for run in runs))

    def _require_intact(self, when: str) -> None:
        """Raises CandidateFault if it changed its weights; inputs are looked at by the checks themselves."""
        if not self._subjects.guards["weights"].intact():
            raise CandidateFault(
                Outcome.WRONG, f"it changes its weights {when}; they are not its to write to"
            )

    def _note_state(self, worker: PythonWorker, course: Course) -> None:
        """Changed numeric state goes into the verdict; under the strict profile it is wrong."""
        course.state_changes = worker.state
        if worker.state and self._settings.profile is Profile.STRICT:
            raise CandidateFault(
                Outcome.WRONG,
                f"it changes {', '.join(worker.state)}, which would change the model's numerics",
            )

    def _time(self, timer: DeviceTimer, course: Course) -> tuple[float | None, list[str]]:
        """Times every timed subject into the course's results; share of the roofline on the heaviest, and remarks."""
        subjects = self._subjects
        share: float | None = None
        heaviest = 0.0
        remarks = []
        for index, subject in enumerate(subjects.subjects):
            if subject.inputs.timing is None:
                continue
            timed = timer.time(index, subject)
            times = {
                "reference": timed.reference,
                "candidate": timed.candidate,
                "graph_reference": timed.graph_reference,
                "graph_candidate": timed.graph_candidate,
            }
            if timed.remark:
                remarks.append(f"workload {subject.id}: {timed.remark}")
            result = course.results[index].model_copy(update=times)
            course.results = (*course.results[:index], result, *course.results[index + 1 :])
            reached = self._roofline_share(subject, timed)
            weight = (timed.graph_reference or timed.reference).median * subject.workload.calls
            if weight > heaviest:
                known = self._roofline.known(subjects, subject)
                heaviest, share = weight, min(reached, 1.0) if known else None
        return share, remarks

    def _roofline_share(self, subject: Subject, timed: DeviceTimed) -> float:
        """Bound over the fastest regime. Raises CandidateFault if the time beats the bound by more than the slack."""
        spent = max(timed.fastest, 1e-3)
        share = self._roofline.share(self._subjects, subject, spent / 1e6)
        if share > SLACK:
            raise CandidateFault(
                Outcome.IMPLAUSIBLE,
                f"workload {subject.id}: {spent:.3g} us a call, but its bytes and products need {share * spent:.3g}",
            )
        return share

    def _profile(self, worker: PythonWorker, checker: Checker) -> str:
        """The profile of the timed subject that weighs most, in the compact form."""
        timed = [(i, s) for i, s in enumerate(self._subjects.subjects) if s.inputs.timing is not None]
        if not timed:
            return ""
        index, subject = max(timed, key=lambda pair: pair[1].eager_seconds * pair[1].workload.calls)
        run = worker.command(
            wire.PROFILE, 2 * index + 1, limit_s=checker.deadline.left, doing="being profiled"
        )
        answer = worker.told(run, "being profiled")
        try:
            kernels = [KernelTime(str(name), int(count), float(us)) for name, count, us in answer["kernels"]]
            forwards, wall = int(answer["calls"]), float(answer["wall_us"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return "its process gave no profile that can be read"
        return device_profile(kernels, forwards=forwards, wall_microseconds=wall, workload=subject.id)


class _TookTooMuch(CandidateFault):
    """Killed for the device memory it held."""


@dataclass(frozen=True)
class _Prepared:
    """A candidate that was compiled, or has its verdict already."""

    candidate: Candidate
    course: Course
    verdict: Verdict | None
    built: Built | None = None


def _management(device: str) -> tuple[Management | None, str]:
    """The management library, or why it is not there."""
    try:
        return Management(device), ""
    except ManagementUnavailable as error:
        return None, str(error)

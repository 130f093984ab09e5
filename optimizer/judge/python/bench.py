"""The bench of Triton candidates where there is no GPU: numbers by the interpreter, and a compile check for a target.

It never gives a time: a candidate that passes everything is correct, and how fast it is stays open.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from optimizer.candidate import Candidate
from optimizer.judge.checks import Checker, Deadline
from optimizer.judge.course import Course
from optimizer.judge.isolation.walls import WallPlan
from optimizer.judge.numeric_state import written_down
from optimizer.judge.python.hints import branch_hint, hint, module_hint
from optimizer.judge.python.knockout import require_custom_kernels
from optimizer.judge.python.paths import python_read_paths
from optimizer.judge.python.plan import worker_plan
from optimizer.judge.python.spawn import PythonWorker, WarmPool
from optimizer.judge.remote import CandidateFault, SandboxFault
from optimizer.judge.settings import JudgeSettings, Profile
from optimizer.judge.subjects import Subjects
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.languages.triton import CompileCheck, CompileFailed, capability

_MEMORY_BEYOND = 2 << 30  # address space a worker may take besides the judge's memory and the model's own

_TUNED = " (the autotune configs take turns, one a launch: any may be the fastest, so each must be right)"
_SLOW = " (in Triton's interpreter, which is slow: shrink the task's shapes, or judge it on a GPU)"


class PythonBench:
    """Judges Triton candidates on the CPU. Use as a context manager.

    Construction starts two warm processes that import torch and Triton (seconds, side by side), unless ``pool`` has
    them already; the first evaluation waits for them. A process that fails is replaced before the next candidate.

    Args:
        pool: warm processes to share with other benches; without it the bench has its own and ends them.

    Raises (on construction):
        UnknownTarget: ``settings.compile_target`` is none.
    """

    def __init__(self, subjects: Subjects, settings: JudgeSettings, pool: WarmPool | None = None) -> None:
        self._subjects = subjects
        self._settings = settings
        self._pool = pool or WarmPool()
        self._owned = pool is None
        self._compiler = CompileCheck(self._pool, settings.compile_target, limit_s=settings.build_limit_s)
        self._pool.zygote(interpret=True)

    def __enter__(self) -> PythonBench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            self._pool.close()

    def evaluate(self, candidate: Candidate) -> Verdict:
        """Check one screened candidate. Whatever it does is a verdict."""
        course = Course()
        with written_down(self._settings.threads):
            try:
                launches = self._check(candidate, course)
                return self._compile(candidate, launches, course)
            except CandidateFault as fault:
                added = _SLOW if fault.outcome is Outcome.HUNG else ""
                if fault.outcome is Outcome.CRASHED:
                    added = hint(fault.reason)
                elif "launches none" in fault.reason or "launched none" in fault.reason:
                    added = branch_hint(candidate.source)
                return course.verdict(fault.outcome, fault.reason + added)
            except SandboxFault as fault:
                return course.verdict(Outcome.SANDBOX_FAILED, str(fault))

    def _check(self, candidate: Candidate, course: Course) -> list[dict[str, Any]]:
        """All checks in the interpreter; the launches seen. Raises CandidateFault."""
        subjects, settings = self._subjects, self._settings
        files = [arena.descriptor for arena in (subjects.inputs, subjects.weights, subjects.outputs)]
        zygote = self._pool.zygote(interpret=True)
        with zygote.start(self._plan(candidate), files) as worker:
            course.started = time.perf_counter()
            course.walls = worker.walls
            worker.load(settings.load_limit_s)
            checker = Checker(subjects, settings, worker, Deadline(settings.run_limit_s))
            try:
                course.results = checker.run()
                self._try_configs(checker, worker)
                course.launches = require_custom_kernels(checker, worker)
            except CandidateFault as fault:
                if fault.outcome is Outcome.WRONG:
                    self._require_clean_state(worker, course)  # often the cause, and then the better reason
                    added = module_hint(worker.launches, worker.unmatched) + (_TUNED if worker.tuned else "")
                    raise CandidateFault(fault.outcome, fault.reason + added) from fault
                raise
            self._require_clean_state(worker, course)
            return worker.records

    def _try_configs(self, checker: Checker, worker: PythonWorker) -> None:
        """Run the first trial of the timed workloads until every autotune config had its turn and was right, or half
        of the time is used up. Raises CandidateFault."""
        until = time.monotonic() + checker.deadline.left / 2
        timed = [pair for pair in enumerate(self._subjects.subjects) if pair[1].timed]
        while worker.untried:
            before = worker.untried
            for index, subject in timed:
                if not worker.untried or time.monotonic() > until:
                    return
                checker.again(index, subject, 0)
            if worker.untried >= before:
                return

    def _require_clean_state(self, worker: PythonWorker, course: Course) -> None:
        """Raises CandidateFault for a changed numeric state; under the paper's profile it is only reported."""
        course.state_changes = worker.state
        if worker.state and self._settings.profile is Profile.STRICT:
            raise CandidateFault(
                Outcome.WRONG,
                f"it changes {'; '.join(worker.state)}, which would change the model's numerics",
            )

    def _compile(self, candidate: Candidate, launches: list[dict[str, Any]], course: Course) -> Verdict:
        try:
            report = self._compiler.check(candidate.source, launches)
        except CompileFailed as failure:
            course.log = failure.log
            reason = (
                f"right in Triton's interpreter, but for {self._settings.compile_target}: {failure.reason}"
            )
            return course.verdict(Outcome.BUILD_FAILED, reason)
        course.build_seconds = report.seconds
        parts = ("all checks passed in Triton's interpreter", str(report), "not timed, there is no GPU here")
        reason = "; ".join(part for part in parts if part)
        return course.verdict(Outcome.CORRECT, reason)

    def _plan(self, candidate: Candidate) -> dict[str, Any]:
        subjects, settings = self._subjects, self._settings
        walls = WallPlan(
            read=python_read_paths(),
            write=(),
            syscalls="python",
            threads=settings.threads,
            cpu_seconds=int(settings.run_limit_s * settings.threads) + 5,
        )
        memory_cap = _MEMORY_BEYOND + 2 * subjects.weight_bytes + 2 * subjects.outputs.size
        plan = worker_plan(subjects, settings, candidate, walls, interpret=True, memory_cap=memory_cap)
        return plan | {"capability": capability(settings.compile_target)}

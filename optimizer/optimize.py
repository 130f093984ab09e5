"""From a run's tasks to its accepted kernels: one search a task, then ``grafts.json``.

Rerunning on the same run continues: turns, completions and verdicts in the store are used, and a finished search
costs nothing. ``grafts.json`` is written anew after every task, so that an interrupted run keeps what it found.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from extractor.errors import KernelgraftError, UsageError
from extractor.families import Family
from extractor.progress import Progress, SilentProgress, stage
from extractor.run_folder import RunFolder, read_json
from extractor.schema import Phase, Workload
from extractor.task import Task, load_tasks
from optimizer.candidate import Candidate, Language
from optimizer.conversation import DEFAULT_LIMIT, Briefing
from optimizer.grafts import GraftFile, GraftRecord
from optimizer.headroom import still_to_give
from optimizer.judge.settings import RULES
from optimizer.judge.verdict import Verdict
from optimizer.optimize_report import OptimizeReport, TaskReport
from optimizer.policies.protocol import Policy
from optimizer.search import Budget, Evaluator, SearchEnd, SearchResult, search_task
from optimizer.store import RunStore, SearchKey
from optimizer.winners import best_speedup, pick_grafts

if TYPE_CHECKING:
    from optimizer.judge.judge import JudgeSettings

_INCLUDE_SICK = "--include-sick searches it too"

OpenJudge = Callable[[Task, Any], AbstractContextManager[Evaluator]]


class NoTasks(KernelgraftError):
    """Nothing to optimize."""

    template = "{path} holds no task{filter}; {remedy}"


class NotResumed(UsageError):
    """The store already holds turns of this search and the caller asked not to continue it."""

    template = (
        "{path} already holds {turns} turns of this search; continue it with --resume or choose another --out"
    )


class DeviceNotJudged(UsageError):
    """The tasks come from a device on which this version judges no kernels."""

    template = (
        "kernels for device {device!r} cannot be written or judged yet, only for the cpu; use --device cpu"
    )


def require_judged_device(device: str) -> None:
    """Raises DeviceNotJudged for every device but the CPU: a verdict from another device would mean nothing."""
    if device.partition(":")[0] != "cpu":
        raise DeviceNotJudged(device=device)


@dataclass(frozen=True)
class Machine:
    """The machine candidates are judged on: its key in the store, its compiler, and facts for the policy."""

    key: str
    facts: str = ""
    compiler: str = ""  # another compiler makes other machine code, so verdicts do not carry over
    bandwidth: float | None = None  # bytes per second from memory to one thread


def optimize(
    run: RunFolder,
    *,
    policy: Policy,
    budget: Budget,
    families: Iterable[Family] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    judge_settings: JudgeSettings | None = None,
    language: Language = Language.CPP,
    seed: int = 0,
    stop_at: float | None = None,
    include_sick: bool = False,
    context_limit: int = DEFAULT_LIMIT,
    open_judge: OpenJudge | None = None,
    machine: Machine | None = None,
) -> OptimizeReport:
    """Search every task of a run and write ``grafts.json``.

    Args:
        run: a run folder with extracted tasks. The caller holds its lock.
        policy: writes the candidates.
        budget: trajectories and turns a task.
        families: only these; None means all.
        resume: continue what the store holds (the default). False refuses if it holds turns of this search.
        judge_settings: the judge's settings; the timed workloads of each task are filled in here.
        seed: the run's seed; each turn's seed derives from it.
        stop_at: end a task early at this share (0..1) of the machine's roofline.
        include_sick: search tasks with health flags too, on which a wrong kernel could pass.
        context_limit: characters of a conversation's messages; the oldest turns are left out beyond it.
        open_judge, machine: replaced in tests and by other executors.

    Raises:
        DeviceNotJudged, NoTasks, NotResumed, CorruptTask, CorruptStore, RunUnwritable: see each; what was
            measured is kept.
        KeyboardInterrupt: passed on once store and ``grafts.json`` are consistent.
    """
    began = time.perf_counter()
    watcher = progress if progress is not None else SilentProgress()
    require_judged_device(run.open().manifest.device)
    wanted = None if families is None else tuple(families)
    chosen = select_tasks(run, wanted, include_sick=include_sick)
    if not include_sick:
        _name_sick(run, wanted, watcher)
    settings = judge_settings if judge_settings is not None else _default_settings()
    here = machine if machine is not None else this_machine()
    opener = open_judge if open_judge is not None else _open_judge
    everything = [
        _plan(task, settings, policy, language, here, seed)
        for task in select_tasks(run, include_sick=include_sick)
    ]
    plans = [plan for plan in everything if plan.task in chosen]
    with RunStore.open(run.path) as store:
        if not resume:
            _refuse_used(store, [plan.key for plan in plans])
        plans = _in_order(run, store, plans, here)
        reports: list[TaskReport] = []
        grafts = _Grafts(run, store, everything)
        with stage(watcher, "optimize", len(plans) * budget.total), grafts:
            for plan in plans:
                briefing = Briefing(plan.task, language, plan.timed, here.facts, context_limit)
                with _LazyJudge(opener, plan) as judge:
                    result = search_task(
                        store,
                        briefing,
                        plan.key,
                        policy=policy,
                        evaluator=judge,
                        budget=budget,
                        progress=watcher,
                        settings_json=plan.settings_json,
                        stop_at=stop_at,
                    )
                reports.append(_report(store, plan, result, grafts.update(plan)))
                _announce(watcher, reports[-1])
            grafts.complete = True
    return OptimizeReport(tuple(reports), here.key, budget, policy.name, time.perf_counter() - began)


def select_tasks(
    run: RunFolder, families: Iterable[Family] | None = None, *, include_sick: bool = False
) -> list[Task]:
    """The run's healthy tasks, or all of them, of all or of some families, in letter order.

    Raises:
        NoTasks, CorruptTask, RunMissing: see each.
    """
    tasks = load_tasks(run.open().tasks_dir)
    if not tasks:
        raise NoTasks(path=run.tasks_dir, filter="", remedy="run `kernelgraft extract` first")
    wanted = set(Family) if families is None else set(families)
    chosen = [task for task in tasks if task.spec.family in wanted]
    if not chosen:
        present = ", ".join(dict.fromkeys(task.spec.family.value for task in tasks))
        names = ", ".join(sorted(family.value for family in wanted))
        raise NoTasks(path=run.tasks_dir, filter=f" of {names}", remedy=f"the run has: {present}")
    if include_sick:
        return chosen
    healthy = [task for task in chosen if not task.spec.health.sick]
    if not healthy:
        raise NoTasks(path=run.tasks_dir, filter=" without health flags", remedy=_INCLUDE_SICK)
    return healthy


def _name_sick(run: RunFolder, families: Iterable[Family] | None, progress: Progress) -> None:
    """One line for each task that is left out, with the reason."""
    for task in select_tasks(run, families, include_sick=True):
        if task.spec.health.sick:
            flags = ", ".join(task.spec.health.flags)
            progress.message(
                f"{task.spec.label}: left out, a wrong kernel could pass ({flags}); {_INCLUDE_SICK}"
            )


def timed_workloads(task: Task) -> tuple[str, ...]:
    """The workloads the score is about: all decode workloads, or all there are if the task has no decode."""
    decode = tuple(w.id for w in task.spec.workloads if w.phase is Phase.DECODE)
    return decode or tuple(w.id for w in task.spec.workloads)


def this_machine() -> Machine:
    """The machine this process runs on."""
    from optimizer.machine import machine_facts

    facts = machine_facts()
    compiler = facts.compiler.version if facts.compiler else ""
    lines = (
        f"CPU: {facts.cpu}, instruction sets {', '.join(facts.isa)}, one thread",
        f"L2 {facts.l2_bytes >> 10} KiB, L3 {facts.l3_bytes >> 20} MiB",
        f"one thread reads {facts.memory_bandwidth / 1e9:.1f} GB/s from memory (measured)",
        f"compiler: {compiler or 'none'}",
    )
    return Machine(facts.key, "\n".join(lines), compiler, facts.memory_bandwidth)


@dataclass(frozen=True)
class Plan:
    """One task with everything its search depends on."""

    task: Task
    key: SearchKey
    settings: Any
    settings_json: str
    timed: tuple[str, ...]


def settings_hash(settings_json: str, workloads: Sequence[Workload]) -> str:
    """Hash over what a verdict depends on besides operator, source and machine: settings and exact shapes."""
    shapes = sorted((workload.id, workload.exact_key, workload.calls) for workload in workloads)
    return hashlib.sha256(json.dumps([settings_json, shapes]).encode()).hexdigest()[:16]


def _plan(
    task: Task, settings: JudgeSettings, policy: Policy, language: Language, machine: Machine, seed: int
) -> Plan:
    timed = timed_workloads(task)
    own = replace(settings, timed_workloads=timed)
    # Where builds are cached decides nothing.
    judge = {name: value for name, value in asdict(own).items() if name != "cache_dir"}
    facts = {"judge": judge, "rules": RULES, "compiler": machine.compiler}
    text = json.dumps(facts, sort_keys=True, default=str)
    digest = settings_hash(text, task.spec.workloads)
    key = SearchKey(task.spec.op_key, policy.name, language, machine.key, digest, seed)
    return Plan(task, key, own, text, timed)


class _LazyJudge:
    """A judge that is opened for its first candidate: finished and unwritable tasks never pay for one."""

    def __init__(self, opener: OpenJudge, plan: Plan) -> None:
        self._opener = opener
        self._plan = plan
        self._stack = ExitStack()
        self._judge: Evaluator | None = None

    def evaluate(self, candidate: Candidate) -> Verdict:
        if self._judge is None:
            self._judge = self._stack.enter_context(self._opener(self._plan.task, self._plan.settings))
        return self._judge.evaluate(candidate)

    def __enter__(self) -> _LazyJudge:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


class _Grafts:
    """``grafts.json`` in the making: what the store already knows at first, rewritten after each task."""

    def __init__(self, run: RunFolder, store: RunStore, plans: Sequence[Plan]) -> None:
        self.run = run
        self.store = store
        self.plans = plans
        self.complete = False
        self.records: dict[str, tuple[GraftRecord, ...]] = {}

    def update(self, plan: Plan) -> tuple[GraftRecord, ...]:
        """Pick the task's winners anew and write the file."""
        self.records[plan.task.id] = pick_grafts(self.store, plan.task, plan.key)
        self.save()
        return self.records[plan.task.id]

    def save(self) -> None:
        records = [record for picked in self.records.values() for record in picked]
        records.sort(key=lambda record: (record.family.order, record.task_id))
        machine = self.plans[0].key.machine
        GraftFile(machine=machine, complete=self.complete, grafts=tuple(records)).save(self.run.path)

    def pick_all(self) -> None:
        """Pick every task's winners from what the store holds now."""
        self.records = {plan.task.id: pick_grafts(self.store, plan.task, plan.key) for plan in self.plans}

    def __enter__(self) -> _Grafts:
        self.pick_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:
            self.save()
        elif issubclass(kind, KeyboardInterrupt):
            self.pick_all()  # the task under way has a best so far, too
            self.save()


def _refuse_used(store: RunStore, keys: Sequence[SearchKey]) -> None:
    searches = [found for key in keys if (found := store.find_search(key)) is not None]
    turns = sum(
        count
        for search in searches
        for (count,) in store.query("SELECT count(*) FROM turns WHERE search = ?", (search,))
    )
    if turns:
        raise NotResumed(path=store.path, turns=turns)


def _in_order(run: RunFolder, store: RunStore, plans: Sequence[Plan], machine: Machine) -> list[Plan]:
    """The plans by what they can still give end to end, most first."""
    census = None
    if run.census_path.exists():
        from extractor.census import Census

        census = read_json(run.census_path, Census)

    def promise(plan: Plan) -> float:
        best = best_speedup(store, plan.key)
        return still_to_give(
            plan.task.spec, plan.timed, best=best, census=census, bandwidth=machine.bandwidth
        )

    return sorted(plans, key=promise, reverse=True)


def _report(store: RunStore, plan: Plan, result: SearchResult, grafts: tuple[GraftRecord, ...]) -> TaskReport:
    best = best_speedup(store, plan.key)
    return TaskReport(
        task_id=plan.task.id,
        label=plan.task.spec.label,
        family=plan.task.spec.family,
        end=result.end,
        counts=result.counts,
        best=best.speedup if best else None,
        grafts=grafts,
        detail=result.detail,
    )


def _announce(progress: Progress, report: TaskReport) -> None:
    """One line a task worth keeping on screen."""
    match report.end:
        case SearchEnd.UNWRITABLE:
            why = report.detail or "the policy has no kernel for it"
            progress.message(f"{report.label}: skipped, {why}")
        case SearchEnd.JUDGE_FAILED:
            progress.message(f"{report.label}: stopped, the judge could not do its work: {report.detail}")
        case SearchEnd.POLICY_FAILED:
            progress.message(f"{report.label}: the policy failed: {report.detail}; run again to retry")
        case _ if not report.counts.turns and report.counts.resumed:
            progress.message(
                f"{report.label}: {report.counts.resumed} stored turns reused, nothing left to do"
            )
        case _ if not report.grafts:
            best = f"best {report.best:.2f}x" if report.best is not None else "nothing correct"
            progress.message(f"{report.label}: no kernel is clearly faster than eager ({best})")
        case _:
            pass


def _default_settings() -> JudgeSettings:
    from optimizer.judge.judge import JudgeSettings

    return JudgeSettings(timed_workloads=())


def _open_judge(task: Task, settings: JudgeSettings) -> AbstractContextManager[Evaluator]:
    from optimizer.judge.judge import Judge

    return Judge(task, settings)

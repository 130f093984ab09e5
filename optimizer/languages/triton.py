"""Would a Triton candidate's kernels compile for a GPU that is not here? Ahead of time, behind walls.

The launches of an interpreted run say with which types, constants and options each kernel is compiled; the compilation
itself happens in a process of its own (:mod:`optimizer.languages.triton_host`), because a process that interprets
kernels cannot compile them. It needs no GPU: Triton brings its assembler.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extractor.errors import KernelgraftError
from optimizer.judge import wire
from optimizer.judge.isolation.walls import WallPlan
from optimizer.judge.python.paths import python_read_paths
from optimizer.judge.python.spawn import PythonWorker, WarmPool
from optimizer.judge.remote import CandidateFault
from optimizer.judge.verdict import Outcome

MOST_COMPILED = 8
_MEMORY = 8 << 30  # address space of the compiling process
_LOG_CHARACTERS = 2000
# Shared memory that one block may have on devices of each compute capability.
SHARED_BYTES = {
    75: 65536,
    80: 166912,
    86: 101376,
    87: 166912,
    89: 101376,
    90: 232448,
    100: 232448,
    120: 101376,
}


_TOO_MUCH = "too much shared memory"
# An autotuner on a GPU goes on without the configs that fail like this.
_PASSED_OVER = (_TOO_MUCH, "PTXASError", "CompileTimeAssertionFailure")


class UnknownTarget(KernelgraftError):
    """The compile target is not one that Triton compiles for."""

    template = "compile target {target!r} is not of the form cuda:CC, such as cuda:80, cuda:90 or cuda:100"


class CompileFailed(Exception):
    """A kernel does not compile for the target: one sentence on why, and the shortened compiler output."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log


@dataclass(frozen=True)
class CompiledKernel:
    """One compiled kernel. ``registers`` a thread, ``shared`` bytes a block; None where the tools do not say."""

    name: str
    shared: int
    registers: int | None

    def __str__(self) -> str:
        registers = "" if self.registers is None else f", {self.registers} registers"
        return f"{self.name} ({self.shared} bytes of shared memory{registers})"


@dataclass(frozen=True)
class CompileReport:
    """What compiled, and what could not be checked and why."""

    target: str
    kernels: tuple[CompiledKernel, ...]
    unchecked: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        parts = []
        if self.kernels:
            parts.append(f"compiles for {self.target}: {', '.join(map(str, self.kernels))}")
        if self.unchecked:
            parts.append(f"not compile-checked: {'; '.join(dict.fromkeys(self.unchecked))}")
        return "; ".join(parts)


def capability(target: str) -> int:
    """The compute capability of a target: 90 for ``cuda:90``. Raises UnknownTarget."""
    backend, _, number = target.partition(":")
    if backend != "cuda" or not number.isdecimal():
        raise UnknownTarget(target=target)
    return int(number)


class CompileCheck:
    """Compiles kernels for one target, in processes forked from a pool's. ``limit_s`` bounds one candidate's kernels.

    Construction starts the pool's process that imports torch and Triton; the first check waits for it.

    Raises (on construction):
        UnknownTarget: the target is none.
    """

    def __init__(self, pool: WarmPool, target: str, *, limit_s: float) -> None:
        self._target = target
        self._capability = capability(target)
        self._limit_s = limit_s
        self._pool = pool
        pool.zygote(interpret=False)

    def check(self, source: str, launches: Sequence[Mapping[str, Any]]) -> CompileReport:
        """Compile each distinct launch; ``launches`` are :func:`.launches.describe_launch` records.

        Raises:
            CompileFailed: the first that does not compile.
            SandboxFault: the compiling process did not come up.
        """
        start = time.monotonic()
        scratch = Path(tempfile.mkdtemp(prefix="kernelgraft-triton-"))
        try:
            with self._pool.zygote(interpret=False).start(self._plan(source, launches, scratch)) as worker:
                kernels, unchecked = self._compile_all(worker, launches, start)
        except CandidateFault as fault:
            raise CompileFailed(_compiling(fault), fault.reason[:_LOG_CHARACTERS]) from fault
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return CompileReport(self._target, tuple(kernels), tuple(unchecked), time.monotonic() - start)

    def _compile_all(
        self, worker: PythonWorker, launches: Sequence[Mapping[str, Any]], start: float
    ) -> tuple[list[CompiledKernel], list[str]]:
        kernels: dict[str, CompiledKernel] = {}
        unchecked: list[str] = []
        passed_over: dict[str, str] = {}
        worker.load(self._limit_s)
        for count, number in enumerate(_each_kernel_first(launches)):
            launch = launches[number]
            name = _name(launch)
            if problem := str(launch.get("problem", "")):
                unchecked.append(f"{name} ({problem[:120]})")
                continue
            if count >= MOST_COMPILED:
                unchecked.append(f"{len(launches) - count} further variants")
                break
            left = self._limit_s - (time.monotonic() - start)
            try:
                compiled = self._compile(worker, name, number, left)
            except (CompileFailed, CandidateFault) as failure:
                if not (
                    launch.get("tuned") and failure.reason.removeprefix("it raised ").startswith(_PASSED_OVER)
                ):
                    raise
                passed_over.setdefault(name, failure.reason.removeprefix("it raised "))
                continue
            if compiled is None:
                unchecked.append(f"{name} (defined inside a function)")
            elif name not in kernels or compiled.shared >= kernels[name].shared:
                kernels[name] = compiled
        for name, problem in passed_over.items():
            if name not in kernels:
                raise CompileFailed(problem)
            unchecked.append(f"some autotune configs of {name}, which do not fit or compile")
        return list(kernels.values()), unchecked

    def _compile(self, worker: PythonWorker, name: str, number: int, limit_s: float) -> CompiledKernel | None:
        doing = f"compiling kernel {name}"
        run = worker.command(wire.RUN, number, limit_s=limit_s, doing=doing)
        answer = worker.told(run, doing)
        if answer.get("missing"):
            return None
        shared, registers = answer.get("shared"), answer.get("registers")
        if not isinstance(shared, int) or not isinstance(registers, int | None):
            raise CompileFailed(f"the process that compiles kernel {name} spoke out of turn")
        most = SHARED_BYTES.get(self._capability)
        if most is not None and shared > most:
            raise CompileFailed(
                f"{_TOO_MUCH}: kernel {name} needs {shared} bytes a block; {self._target} has {most}"
            )
        return CompiledKernel(name, shared, registers)

    def _plan(self, source: str, launches: Sequence[Mapping[str, Any]], scratch: Path) -> dict[str, Any]:
        walls = WallPlan(
            read=python_read_paths(),
            write=(str(scratch), "/dev/null"),
            syscalls="builder",
            threads=4,
            cpu_seconds=int(2 * self._limit_s) + 5,
        )
        return {
            "host": "compiler",
            "source": source,
            "launches": list(launches),
            "capability": self._capability,
            "walls": walls.to_json(),
            "memory_cap": _MEMORY,
            "scratch": str(scratch),
            "sizes": {"inputs": 0, "weights": 0, "outputs": 0},
        }


def _name(launch: Mapping[str, Any]) -> str:
    return str(launch.get("kernel", ""))[:80]


def _each_kernel_first(launches: Sequence[Mapping[str, Any]]) -> list[int]:
    """Indices of the launches: the first of each kernel, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    keys = []
    for number, launch in enumerate(launches):
        keys.append((seen[_name(launch)], number))
        seen[_name(launch)] += 1
    return [number for _, number in sorted(keys)]


def _compiling(fault: CandidateFault) -> str:
    """A fault of the compiling process, as a sentence about compilation."""
    if fault.outcome is Outcome.HUNG:
        return f"the compiler was {fault.reason}"
    return fault.reason.removeprefix("it raised ")

"""Compile candidates ahead of their measurement, each in a process of its own and into a folder of its own.

The candidate is loaded, constructed and called once a workload with its Triton launches compiled but not run.
Extensions it asks for are compiled on this side (:mod:`optimizer.languages.cuda`), and it is started again. What it
leaves in its folder only ever serves the same candidate: a folder shared by all would let one put code into another's
measurement.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from optimizer.candidate import Candidate, Language
from optimizer.judge.device.confine import building_walls, memory_cap, memory_limit
from optimizer.judge.device.roofline import DeviceFacts
from optimizer.judge.device.watch import Management, MemoryWatch
from optimizer.judge.python.plan import regions, worker_plan
from optimizer.judge.python.spawn import Zygote
from optimizer.judge.remote import CandidateFault
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subjects
from optimizer.judge.verdict import Outcome
from optimizer.languages.cpp_cache import BuildCache
from optimizer.languages.cuda import ExtensionBuilder, ExtensionFailed, ExtensionSource
from optimizer.languages.cuda_host import REQUEST_SUFFIX

CUDA_LIMIT_S = 180.0  # nvcc and torch's headers take half a minute where a Triton kernel takes a second
_ROUNDS = 6  # of extensions asked for one after another
_DONE = ".done"
_FOLDER = "kernels-"
MOST_FOLDERS = 2048  # of about 200 KiB each
_ABANDONED_S = 3600.0
_COMPILER_NAMES = (
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "OutOfResources",
)
_LOG_CHARACTERS = 4000

# Loaded once so that what Triton compiles for itself is there for everyone.
_WARM = """
import torch, triton, triton.language as tl
@triton.jit
def warm(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + i, tl.load(x + i))
warm[(1,)](torch.empty(16, device="cuda"), n=16)
"""


class BuildFailed(Exception):
    """A candidate cannot be compiled: one sentence on why, and the log."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log


@dataclass(frozen=True)
class Built:
    """A compiled candidate: its folder of compiled kernels. ``seconds`` is 0 for one compiled before."""

    folder: Path
    seconds: float


class Workshop:
    """Compiles candidates for one judge's subjects. Several threads may build at once.

    Raises (on construction):
        BuildCacheUnusable: the cache folder cannot be written.
    """

    def __init__(
        self,
        zygote: Zygote,
        subjects: Subjects,
        settings: JudgeSettings,
        facts: DeviceFacts,
        management: Management | None,
    ) -> None:
        self._zygote = zygote
        self._subjects = subjects
        self._settings = settings
        self._facts = facts
        self._management = management
        self._cache = BuildCache(Path(settings.cache_dir) if settings.cache_dir else None)
        self._home = self._cache.root / "triton"
        self._home.mkdir(exist_ok=True)
        self._sweep()
        self._lock = threading.Lock()

    def _sweep(self) -> None:
        """Remove the oldest compiled candidates beyond the cap, and what killed builds left."""
        folders = {path.name: path for path in self._home.glob(f"{_FOLDER}*")}
        newest = sorted(self._home.glob(f"*{_DONE}"), key=lambda path: path.stat().st_mtime, reverse=True)
        for number, done in enumerate(newest):
            if number < MOST_FOLDERS:
                folders.pop(done.read_text(encoding="utf-8"), None)
            else:
                done.unlink(missing_ok=True)
        for path in folders.values():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(path, ignore_errors=True)

    @cached_property
    def extensions(self) -> ExtensionBuilder:
        """The builder of CUDA extensions. Raises NoCudaCompiler."""
        limit = max(self._settings.build_limit_s, CUDA_LIMIT_S)
        return ExtensionBuilder(self._cache.root, self._facts.architecture, limit_s=limit)

    def build(self, candidate: Candidate) -> Built:
        """Compile a candidate, or find it compiled.

        Raises:
            BuildFailed: it does not compile, or not in time.
            CandidateFault: it fails before any kernel of it runs.
        """
        done = self._home / f"{self._key(candidate)}{_DONE}"
        with contextlib.suppress(FileNotFoundError):
            return Built(self._home / done.read_text(encoding="utf-8"), 0.0)
        start = time.perf_counter()
        warm = self._warm()
        # Triton writes absolute paths into its cache: a folder that is moved is empty to it.
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=self._home))
        try:
            shutil.copytree(warm, folder, dirs_exist_ok=True)
            self._compile(candidate, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        with self._cache.scratch() as scratch:
            (scratch / "done").write_text(folder.name, encoding="utf-8")
            self._cache.publish(scratch / "done", done)
        return Built(folder, time.perf_counter() - start)

    def _compile(self, candidate: Candidate, folder: Path) -> None:
        """Rehearse until no extension is missing. Raises what :meth:`build` raises."""
        for _ in range(_ROUNDS):
            fault = self._rehearse(candidate, folder)
            requests = sorted(folder.glob(f"*{REQUEST_SUFFIX}"))
            if not requests:
                if fault is not None:
                    raise fault
                return
            self._build_extensions([path.read_text(encoding="utf-8") for path in requests])
            for path in requests:
                path.unlink()
        raise BuildFailed(f"it asks for extensions more than {_ROUNDS} times in a row; use fewer")

    def _rehearse(self, candidate: Candidate, work: Path) -> CandidateFault | None:
        """Load, construct and call the candidate with launches compiled only; what of its own doing went wrong."""
        limit = self._settings.build_limit_s
        deadline = time.monotonic() + limit
        # Without the management library only the whole device can be watched, and eight builders share it.
        allowed = memory_limit(self._subjects) if self._management is not None else sys.maxsize
        with (
            self._zygote.start(self._plan(candidate, work, limit)) as worker,
            MemoryWatch(worker.pid, allowed, self._management, self._settings.device) as watch,
        ):
            try:
                worker.load(deadline - time.monotonic())
                worker.pack(0, deadline - time.monotonic())
            except CandidateFault as fault:
                if watch.problem:
                    return CandidateFault(Outcome.CRASHED, watch.problem)
                self._require_compiling(fault, limit)
                return fault
            for region, described in enumerate(regions(self._subjects)):
                if not described["slots"]:
                    continue
                try:
                    worker.run(region, 0, 1, deadline - time.monotonic(), "being compiled")
                except CandidateFault as fault:
                    if watch.problem:
                        return CandidateFault(Outcome.CRASHED, watch.problem)
                    self._require_compiling(fault, limit)
                    # Its kernels have not run: what it makes of their results may rightly fail. The real run tells;
                    # other workloads may still show kernels to compile.
                    continue
        return None

    def _require_compiling(self, fault: CandidateFault, limit: float) -> None:
        """Raises BuildFailed if that is what the fault is."""
        if fault.outcome is Outcome.HUNG:
            raise BuildFailed(
                f"compilation took longer than {limit:g} s and was killed; use fewer configurations and less unrolling"
            ) from fault
        if any(name in fault.reason for name in _COMPILER_NAMES):
            raise BuildFailed(
                f"compile error: {fault.reason[:600]}", fault.reason[:_LOG_CHARACTERS]
            ) from fault

    def _build_extensions(self, asked: list[str]) -> None:
        try:
            sources = [ExtensionSource.from_json(text) for text in asked]
            with ThreadPoolExecutor(max(len(sources), 1)) as pool:
                list(pool.map(self.extensions.build, sources))
        except ExtensionFailed as failure:
            raise BuildFailed(failure.reason, failure.log) from failure

    def _plan(self, candidate: Candidate, work: Path, limit: float) -> dict[str, Any]:
        libraries = [self.extensions.folder] if candidate.language is Language.CUDA else []
        return worker_plan(
            self._subjects,
            self._settings,
            candidate,
            building_walls(limit, work, libraries),
            interpret=False,
            memory_cap=memory_cap(self._subjects),
            cache=str(work),
            build=True,
            handles=handles(self._subjects),
            extensions=self.extension_plan(candidate, work),
        )

    def extension_plan(self, candidate: Candidate, requests: Path | None) -> dict[str, str] | None:
        """Where a worker finds extensions, and where it asks for them; None for languages without."""
        if candidate.language is not Language.CUDA:
            return None
        return {
            "folder": str(self.extensions.folder),
            "toolchain": self.extensions.toolchain,
            "requests": str(requests) if requests else "",
        }

    def _warm(self) -> Path:
        """A folder with what Triton compiles for itself, made once per version of it."""
        with self._lock:
            folder = self._home / f"warm-{self._digest('')}"
            if folder.exists():
                return folder
            with self._cache.scratch() as scratch:
                work = scratch / "kernels"
                work.mkdir()
                with self._zygote.start(self._plan(Candidate(Language.TRITON, _WARM), work, 120.0)) as worker:
                    worker.load(120.0)
                self._cache.publish(work, folder)
            return folder

    def _key(self, candidate: Candidate) -> str:
        return self._digest(candidate.sha, self._subjects.task.id, repr(regions(self._subjects)))

    def _digest(self, *parts: str) -> str:
        import triton

        facts = (self._facts.key, torch.__version__, triton.__version__, *parts)
        return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def handles(subjects: Subjects) -> dict[str, str]:
    """The handles by which a worker opens the judge's memory, in hexadecimal."""
    arenas: dict[str, Any] = {
        "inputs": subjects.inputs,
        "weights": subjects.weights,
        "outputs": subjects.outputs,
    }
    return {kind: arena.handle for kind, arena in arenas.items()}

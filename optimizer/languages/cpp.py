"""The ``cpp`` language: compile a candidate with the system compiler, without torch headers.

A kernel that includes torch's headers takes 40 s to build; one that includes only the precompiled ``kg.h``
takes 0.1 s, and that decides how many candidates a minute a search can try.

Floating point. ``-ffast-math`` is not used: at link time it makes every process that loads the library flush
denormals to zero, so a kernel would change its host model's numerics, and it lets the compiler assume that
there are no NaNs, which the judge checks for. ``-fno-math-errno`` and ``-fno-trapping-math`` are used: they change
no value and let loops vectorise. Contraction into FMA is the compiler's default and allowed.
"""

import hashlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from extractor.errors import KernelgraftError
from optimizer.candidate import Candidate
from optimizer.judge.isolation import WallPlan, sandboxed_command, system_read_paths
from optimizer.languages.cpp_cache import BuildCache
from optimizer.machine import MachineFacts, machine_facts

PRELUDE = Path(__file__).parent / "prelude" / "kg.h"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-plt",
)
_DIAGNOSTICS = ("-fdiagnostics-color=never", "-fmessage-length=0")
_LINK = ("-shared", "-Wl,-z,defs", "-Wl,-z,now")
_SOURCE = "candidate.cpp"
_COMPILER_MEMORY = 4 << 30
_LOG_CHARACTERS = 4000
_ERRORS_SHOWN = 3


class CompileFailed(KernelgraftError):
    """The compiler refused a source, or ran out of time or memory.

    ``reason`` is one sentence a policy can act on, ``log`` the shortened compiler output.
    """

    template = "{reason}"

    def __init__(self, reason: str, log: str) -> None:
        super().__init__(reason=reason, log=log)
        self.reason = reason
        self.log = log


@dataclass(frozen=True)
class BuiltLibrary:
    """A compiled candidate. ``seconds`` is what this build took; a ``cached`` one was built earlier."""

    path: Path
    seconds: float
    cached: bool


class CppBuilder:
    """Compiles C++ sources into shared libraries, behind walls and through the build cache.

    ``limit_s`` bounds one compilation's wall-clock time; then the compiler and all it started are killed.

    Raises:
        NoCompiler: there is none on this machine.
        BuildCacheUnusable: the cache folder cannot be written.
    """

    def __init__(
        self, cache_dir: Path | None = None, *, limit_s: float = 30.0, machine: MachineFacts | None = None
    ) -> None:
        self._machine = machine or machine_facts()
        self._compiler = self._machine.require_compiler()
        self._cache = BuildCache(cache_dir)
        self._limit_s = limit_s

    def build(self, candidate: Candidate) -> BuiltLibrary:
        """Compile a candidate, or find it compiled. Raises CompileFailed."""
        return self.build_source(candidate.source)

    def build_source(self, source: str, flags: tuple[str, ...] = ()) -> BuiltLibrary:
        """Compile C++ text that sees ``kg.h``; ``flags`` come after the standard ones. Raises CompileFailed."""
        key = self._key("library", source, *flags)
        target = self._cache.path("build", f"{key}.so")
        start = time.perf_counter()
        if self._cache.holds_library(target):
            return BuiltLibrary(path=target, seconds=0.0, cached=True)
        prelude = self._precompiled_prelude
        with self._cache.scratch() as folder:
            (folder / _SOURCE).write_text(source, encoding="utf-8")
            include = ["-include-pch", f"{prelude}.pch"] if self._is_clang else ["-include", str(prelude)]
            command = [self._compiler.path, *FLAGS, *flags, *_DIAGNOSTICS, *_LINK, "-I", str(prelude.parent)]
            command += [*include, "-o", "out.so", _SOURCE]
            self._run(command, folder, readable=(str(prelude.parent),))
            self._cache.publish_library(folder / "out.so", target)
        return BuiltLibrary(path=target, seconds=time.perf_counter() - start, cached=False)

    @property
    def _is_clang(self) -> bool:
        return self._compiler.kind == "clang"

    @cached_property
    def _precompiled_prelude(self) -> Path:
        """Path of the prelude beside its precompiled form; built on first use, about 1 s."""
        key = self._key("prelude", "")
        home = self._cache.path("pch", key)
        if not self._cache.holds_folder(home):
            with self._cache.scratch() as folder:
                inside = folder / "prelude"
                inside.mkdir()
                (inside / PRELUDE.name).write_bytes(PRELUDE.read_bytes())
                suffix = "pch" if self._is_clang else "gch"
                command = [self._compiler.path, *FLAGS, *_DIAGNOSTICS, "-x", "c++-header", PRELUDE.name]
                command += ["-w", "-o", f"{PRELUDE.name}.{suffix}"]
                self._run(command, inside, readable=())
                self._cache.publish_folder(inside, home)
        return home / PRELUDE.name

    def _key(self, kind: str, *parts: str) -> str:
        """sha256 over everything the artefact depends on: never a name, a path or a date."""
        facts = (kind, *FLAGS, *_LINK, self._compiler.path, self._compiler.version, self._machine.flags)
        digest = hashlib.sha256()
        for part in (*facts, PRELUDE.read_text(encoding="utf-8"), *parts):
            digest.update(part.encode("utf-8", errors="surrogatepass"))
            digest.update(b"\0")
        return digest.hexdigest()

    def _run(self, command: list[str], folder: Path, readable: tuple[str, ...]) -> None:
        """Run the compiler in ``folder`` behind walls. Raises CompileFailed."""
        plan = WallPlan(
            read=(*system_read_paths(self._compiler.path), *readable),
            write=(str(folder), "/dev/null"),
            syscalls="compiler",
            address_space=_COMPILER_MEMORY,
            cpu_seconds=int(self._limit_s) + 1,
        )
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": str(folder), "LC_ALL": "C"}
        process = subprocess.Popen(
            sandboxed_command(plan, command),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with process:
            try:
                output, _ = process.communicate(timeout=self._limit_s)
            except subprocess.TimeoutExpired as error:
                raise CompileFailed(
                    f"compilation took longer than {self._limit_s:g} s and was killed; "
                    "use fewer templates, less unrolling and smaller functions",
                    "",
                ) from error
            finally:
                if process.poll() is None:
                    _kill_group(process.pid)
        if process.returncode != 0:
            log = without_paths(output.decode("utf-8", errors="replace"), str(folder))
            raise CompileFailed(explain(log, process.returncode), shorten(log))


def _kill_group(group: int) -> None:
    """Kill whatever is left of a process group; the launcher made it a session of its own."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def without_paths(log: str, folder: str) -> str:
    """Compiler output without build paths."""
    return log.replace(f"{folder}/", "").replace(str(PRELUDE.parent) + "/", "")


def shorten(log: str) -> str:
    """Compiler output, at most ``_LOG_CHARACTERS`` of it."""
    return log if len(log) <= _LOG_CHARACTERS else log[:_LOG_CHARACTERS] + "\n... (shortened)"


def explain(log: str, status: int) -> str:
    """One sentence from compiler output: the first errors with their lines, or the missing symbols."""
    if re.search(r"virtual memory exhausted|out of memory|bad_alloc", log):
        return "compilation ran out of memory (4 GiB); use fewer templates and less unrolling"
    errors = re.findall(rf"{re.escape(_SOURCE)}:(\d+):(?:\d+:)? (?:fatal )?error: (.+)", log)
    if errors:
        shown = "; ".join(f"line {line}: {message.strip()}" for line, message in errors[:_ERRORS_SHOWN])
        return f"compile error at {shown}"
    missing = dict.fromkeys(re.findall(r"undefined reference to [`']([^`']+)'", log))
    if missing:
        return f"undefined symbol: {', '.join(list(missing)[:_ERRORS_SHOWN])}; only kg.h and the C++ library are linked"
    other = re.search(r"[Ee]rror: (.+)", log)
    if other:
        return f"compile error: {other[1].strip()}"
    return f"the compiler ended with status {status} and no error message"

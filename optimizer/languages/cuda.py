"""Build CUDA extensions that a candidate asks for through ``load_inline``, on the trusted side and ahead of its run.

The candidate's process may not start programs. Its ``load_inline`` (:mod:`optimizer.languages.cuda_host`) only writes
down what is to be built: an :class:`ExtensionSource`. The compilers run here, behind walls, on that text, and the
candidate's next process imports the finished library from the cache. Libraries are addressed by a hash of everything
they depend on, which this side computes: a worker cannot put anything into the cache.

Every library is linked so that its kernel launches pass through :data:`WRAPPER`, which counts them, and suppresses
them when the judge asks what the outputs are without the kernel.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from extractor.errors import KernelgraftError
from optimizer.judge.isolation.launch import sandboxed_command
from optimizer.judge.isolation.walls import WallPlan, system_read_paths
from optimizer.languages.cpp_cache import BuildCache

RULES = "1"  # part of every key: counts up when the commands below change
_NAME = re.compile(r"[A-Za-z_]\w{0,79}")
_MOST_SOURCE = 1 << 20  # characters
_FLAG = re.compile(
    r"-O[0-3]|-std=c\+\+(?:17|20)|-g?lineinfo|-?-(?:use_fast_math|extended-lambda|expt-\w+(?:-\w+)*)|-w|-Wno-[\w-]+"
    r"|-?-(?:maxrregcount|fmad|ftz|prec-div|prec-sqrt)=\w+|-[DU]\w+(?:=\w+)?|-Xptxas(?:=[\w=,-]+)?|-v|-ffast-math"
    r"|--ptxas-options=[\w=,-]+|-march=native|-funroll-loops"
)
_TARGET_FLAG = re.compile(r"-?-(?:gencode|arch)=?.*|arch=.*")
_LIBRARY = re.compile(r"-l(?:cudart|cublas|cublasLt|cuda)")
_ALLOWED = "-O0..3, -std=c++17/20, --use_fast_math, -lineinfo, -maxrregcount=N, -Xptxas, -D, -U; of libraries -lcublas"
_LOG_CHARACTERS = 4000
_ERRORS_SHOWN = 2
_COMPILER_MEMORY = 16 << 30

WRAPPER = r"""
#include <cstddef>
namespace {
struct Dim3 { unsigned x, y, z; };
unsigned long long launches = 0;
bool suppressed = false;
bool passes() { __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED); return !suppressed; }
}
#define KG_LAUNCH(NAME)                                                                                        \
  extern "C" __attribute__((weak)) int __real_##NAME(const void*, Dim3, Dim3, void**, size_t, void*);           \
  extern "C" int __wrap_##NAME(const void* k, Dim3 g, Dim3 b, void** a, size_t m, void* s) {                    \
    return passes() ? __real_##NAME(k, g, b, a, m, s) : 0;                                                      \
  }
#define KG_LAUNCH_EX(NAME)                                                                                     \
  extern "C" __attribute__((weak)) int __real_##NAME(const void*, const void*, void**);                         \
  extern "C" int __wrap_##NAME(const void* c, const void* k, void** a) {                                        \
    return passes() ? __real_##NAME(c, k, a) : 0;                                                               \
  }
KG_LAUNCH(cudaLaunchKernel)
KG_LAUNCH(cudaLaunchKernel_ptsz)
KG_LAUNCH(__cudaLaunchKernel)
KG_LAUNCH(__cudaLaunchKernel_ptsz)
KG_LAUNCH(cudaLaunchCooperativeKernel)
KG_LAUNCH_EX(cudaLaunchKernelExC)
extern "C" __attribute__((visibility("default"))) unsigned long long kg_launches() { return launches; }
extern "C" __attribute__((visibility("default"))) void kg_knock_out(int on) { suppressed = on != 0; }
"""
WRAPPED = (
    "cudaLaunchKernel",
    "cudaLaunchKernel_ptsz",
    "__cudaLaunchKernel",
    "__cudaLaunchKernel_ptsz",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchKernelExC",
)


class NoCudaCompiler(KernelgraftError):
    """The cuda language needs nvcc and there is none."""

    template = (
        "no nvcc found (looked in $CUDA_HOME, on PATH and in /usr/local/cuda); install the CUDA toolkit"
    )


class ExtensionFailed(Exception):
    """An extension cannot be built: one sentence on why, and the shortened compiler output."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log


@dataclass(frozen=True)
class ExtensionSource:
    """What one ``load_inline`` asks for. ``cpp`` and ``cuda`` are whole files, the bindings included."""

    name: str
    cpp: str
    cuda: str
    cpp_flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()

    def to_json(self) -> str:
        """One line of JSON, the same for equal sources."""
        return json.dumps(self.__dict__, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ExtensionSource:
        """The inverse of :meth:`to_json`, for text that a candidate may have written. Raises ExtensionFailed."""
        try:
            fields = json.loads(text)
            flags = {key: tuple(map(str, fields[key])) for key in ("cpp_flags", "cuda_flags", "link_flags")}
            source = cls(name=str(fields["name"]), cpp=str(fields["cpp"]), cuda=str(fields["cuda"]), **flags)
        except (ValueError, KeyError, TypeError) as error:
            raise ExtensionFailed("its request for an extension is malformed") from error
        source.validate()
        return source

    def validate(self) -> None:
        """Raises ExtensionFailed for a name, size or flag that is not allowed."""
        if not _NAME.fullmatch(self.name):
            raise ExtensionFailed(f"extension name {self.name[:40]!r} is no identifier")
        if len(self.cpp) + len(self.cuda) > _MOST_SOURCE:
            raise ExtensionFailed(f"the extension's source is longer than {_MOST_SOURCE} characters")
        for flag in (*self.cpp_flags, *self.cuda_flags):
            if not (_FLAG.fullmatch(flag) or _TARGET_FLAG.fullmatch(flag)):
                raise ExtensionFailed(f"compiler flag {flag[:60]!r} is not allowed; allowed: {_ALLOWED}")
        for flag in self.link_flags:
            if not _LIBRARY.fullmatch(flag):
                raise ExtensionFailed(f"linker flag {flag[:60]!r} is not allowed; allowed: {_ALLOWED}")

    def key(self, toolchain: str) -> str:
        """Content address of the finished library."""
        return hashlib.sha256(f"{RULES}\0{toolchain}\0{self.to_json()}\0{WRAPPER}".encode()).hexdigest()


@dataclass(frozen=True)
class BuiltExtension:
    """A finished library. ``seconds`` is what this build took; 0 for one that was there."""

    path: Path
    seconds: float


class ExtensionBuilder:
    """Compiles extensions for one device architecture (``90`` for an H200). Safe for several threads.

    Raises:
        NoCudaCompiler: there is no nvcc.
        BuildCacheUnusable: the cache folder cannot be written.
    """

    def __init__(self, cache_dir: Path | None, architecture: str, *, limit_s: float) -> None:
        self._nvcc = find_nvcc()
        self._gxx = shutil.which("g++") or "g++"
        self._architecture = architecture
        self._limit_s = limit_s
        self._cache = BuildCache(cache_dir)
        self.folder = self._cache.root / "build"

    @cached_property
    def toolchain(self) -> str:
        """Everything besides the source that a library depends on."""
        versions = [
            subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
            for program in (self._nvcc, self._gxx)
        ]
        facts = (*versions, torch.__version__, sys.version, self._architecture)
        return hashlib.sha256("\0".join(facts).encode()).hexdigest()

    def build(self, source: ExtensionSource) -> BuiltExtension:
        """Compile and link, or find it built. Raises ExtensionFailed."""
        source.validate()
        target = self.folder / f"{source.key(self.toolchain)}.so"
        if target.exists():
            return BuiltExtension(target, 0.0)
        start = time.perf_counter()
        deadline = start + self._limit_s
        with self._cache.scratch() as folder:
            (folder / "main.cpp").write_text(source.cpp, encoding="utf-8")
            (folder / "cuda.cu").write_text(source.cuda, encoding="utf-8")
            (folder / "wrapper.cpp").write_text(WRAPPER, encoding="utf-8")
            commands = [
                self._gxx_command(source),
                [self._gxx, "-O2", "-fPIC", "-c", "wrapper.cpp", "-o", "wrapper.o"],
            ]
            if source.cuda:
                commands.append(self._nvcc_command(source))
            with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
                jobs = [pool.submit(self._run, command, folder, deadline) for command in commands]
                for job in reversed(jobs):  # an error in the kernel says more than what follows from it
                    job.result()
            self._run(self._link_command(source), folder, deadline)
            self._cache.publish(folder / "out.so", target)
        return BuiltExtension(target, time.perf_counter() - start)

    @cached_property
    def _includes(self) -> list[str]:
        from torch.utils.cpp_extension import include_paths

        paths = [*include_paths("cuda"), sysconfig.get_paths()["include"]]
        return [part for path in dict.fromkeys(paths) for part in ("-isystem", path)]

    def _defines(self, source: ExtensionSource) -> list[str]:
        abi = int(torch.compiled_with_cxx11_abi())
        return [
            f"-DTORCH_EXTENSION_NAME={source.name}",
            "-DTORCH_API_INCLUDE_EXTENSION_H",
            f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        ]

    def _gxx_command(self, source: ExtensionSource) -> list[str]:
        flags = [flag for flag in source.cpp_flags if not _TARGET_FLAG.fullmatch(flag)]
        # What binds the kernel need not be fast, and optimising torch's headers takes longer than the kernel.
        standard = ["-std=c++17", "-fPIC", "-O1", "-w", *self._defines(source), *self._includes]
        return [self._gxx, *standard, *flags, "-c", "main.cpp", "-o", "main.o"]

    def _nvcc_command(self, source: ExtensionSource) -> list[str]:
        flags = [flag for flag in source.cuda_flags if not _TARGET_FLAG.fullmatch(flag)]
        suffix = "a" if self._architecture == "90" else ""  # all the chip has: code for this machine only
        target = [f"-gencode=arch=compute_{self._architecture}{suffix},code=sm_{self._architecture}{suffix}"]
        standard = ["-std=c++17", "-O3", "-Xcompiler", "-fPIC,-O1", "-w", "--expt-relaxed-constexpr"]
        standard += ["--expt-extended-lambda", "-ccbin", self._gxx]
        inputs = [*self._defines(source), *self._includes, *flags]
        return [self._nvcc, *standard, *target, *inputs, "-c", "cuda.cu", "-o", "cuda.o"]

    def _link_command(self, source: ExtensionSource) -> list[str]:
        from torch.utils.cpp_extension import library_paths

        folders = [part for path in library_paths("cuda") for part in (f"-L{path}", f"-Wl,-rpath,{path}")]
        wraps = [f"-Wl,--wrap={name}" for name in WRAPPED]
        libraries = [
            "-lc10",
            "-lc10_cuda",
            "-ltorch_cpu",
            "-ltorch_cuda",
            "-ltorch",
            "-ltorch_python",
            "-lcudart",
        ]
        objects = ["main.o", *(["cuda.o"] if source.cuda else []), "wrapper.o"]
        # -Bsymbolic: no other library of the process can put itself between a kernel and the wrapper.
        return [
            self._gxx, "-shared", "-Wl,-Bsymbolic", *objects, "-o", "out.so", *wraps, *folders, *libraries,
            *source.link_flags,
        ]  # fmt: skip

    def _run(self, command: list[str], folder: Path, deadline: float) -> None:
        """Run a compiler in ``folder`` behind walls. Raises ExtensionFailed."""
        home = Path(self._nvcc).resolve().parents[1]
        plan = WallPlan(
            read=(
                *system_read_paths(self._gxx, sys.executable), str(home), str(Path(torch.__file__).parent),
                sysconfig.get_paths()["include"], "/proc", "/etc",
            ),
            write=(str(folder), "/dev/null"),
            syscalls="compiler",
            address_space=_COMPILER_MEMORY,
            cpu_seconds=int(2 * self._limit_s) + 1,
            file_bytes=1 << 30,
        )  # fmt: skip
        environment = {
            "PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(folder),
            "LC_ALL": "C",
        }
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
                output, _ = process.communicate(timeout=max(deadline - time.perf_counter(), 0.01))
            except subprocess.TimeoutExpired as error:
                raise ExtensionFailed(
                    f"compilation took longer than {self._limit_s:g} s and was killed; "
                    "include torch/types.h instead of torch/extension.h, and use fewer templates"
                ) from error
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            log = output.decode("utf-8", errors="replace").replace(f"{folder}/", "")
            raise ExtensionFailed(explain(log, process.returncode), log[:_LOG_CHARACTERS])


def find_nvcc() -> str:
    """Absolute path of nvcc. Raises NoCudaCompiler."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for path in (shutil.which("nvcc"), *(f"{home}/bin/nvcc" for home in homes if home)):
        if path and os.access(path, os.X_OK):
            return os.path.realpath(path)
    raise NoCudaCompiler()


def explain(log: str, status: int) -> str:
    """One sentence from the output of nvcc, g++ or the linker: the first errors with their lines."""
    patterns = (
        r"(cuda\.cu|main\.cpp)\((\d+)\): (?:catastrophic )?error(?: #?[\w-]+)?: (.+)",
        r"(cuda\.cu|main\.cpp):(\d+):(?:\d+:)? (?:fatal )?error: (.+)",
    )
    for pattern in patterns:
        errors: list[Any] = re.findall(pattern, log)
        if errors:
            shown = "; ".join(
                f"{file} line {line}: {text.strip()}" for file, line, text in errors[:_ERRORS_SHOWN]
            )
            return f"compile error at {shown}"
    missing = dict.fromkeys(re.findall(r"undefined reference to [`']([^`']+)'", log))
    if missing:
        return f"undefined symbol: {', '.join(list(missing)[:_ERRORS_SHOWN])}"
    ptxas = re.search(r"ptxas (?:error|fatal)\s*: (.+)", log)
    if ptxas:
        return f"ptxas: {ptxas[1].strip()}"
    other = re.search(r"[Ee]rror:? (.+)", log)
    return f"compile error: {other[1].strip()}" if other else f"the compiler ended with status {status}"

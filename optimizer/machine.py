"""What this machine is: processor, instruction sets, caches, compiler, memory bandwidth.

Timings are only comparable on one machine, so every verdict carries :attr:`MachineFacts.key`.
"""

import ctypes
import functools
import mmap
import os
import platform
import re
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from extractor.errors import KernelgraftError

_ISA_FLAGS = (("avx512_bf16", "avx512_bf16"), ("avx512f", "avx512f"), ("avx2", "avx2"))
_COMPILER_LIMIT_S = 20.0
_DEFAULT_L2, _DEFAULT_L3 = 1 << 20, 32 << 20  # where sysfs says nothing (some virtual machines)


class NoCompiler(KernelgraftError):
    """The cpp language needs a C++ compiler and there is none."""

    template = (
        "no C++ compiler found (looked for $CXX, g++, clang++); install one, for example `apt install g++`"
    )


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler found on this machine. ``version`` is the first line it prints; ``kind`` gcc or clang."""

    path: str
    version: str
    kind: str


@dataclass(frozen=True)
class MachineFacts:
    """The facts kernels and verdicts depend on. Sizes in bytes; ``isa`` ordered from richest to ``portable``."""

    cpu: str
    cpu_model: str  # family-model-stepping, or the ARM implementer and part
    isa: tuple[str, ...]
    flags: str  # all instruction-set flags, space separated: part of build cache keys
    cores: int
    l2_bytes: int
    l3_bytes: int
    compiler: Compiler | None

    @property
    def key(self) -> str:
        """Stable name of this machine: processor, richest instruction set, cores."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.cpu.lower()).strip("-")
        return f"{slug}-{self.cpu_model}-{self.isa[0]}-{self.cores}c"

    def describe(self) -> str:
        """A few lines of facts for whoever writes kernels for this machine."""
        compiler = self.compiler.version if self.compiler else "none"
        return (
            f"processor: {self.cpu} ({self.cpu_model}), {self.cores} cores\n"
            f"instruction sets: {', '.join(self.isa)}\n"
            f"L2 {self.l2_bytes >> 10} KiB a core, L3 {self.l3_bytes >> 20} MiB\n"
            f"compiler: {compiler}"
        )

    def require_compiler(self) -> Compiler:
        """The compiler, or NoCompiler saying what to install."""
        if self.compiler is None:
            raise NoCompiler()
        return self.compiler

    @cached_property
    def memory_bandwidth(self) -> float:
        """Bytes per second one thread reads from memory, measured once (about 0.3 s)."""
        return self.measure_memory_bandwidth()

    def measure_memory_bandwidth(self) -> float:
        """Measure anew: on a busy machine one measurement may be far too low, never too high."""
        return _read_bandwidth(min(max(4 * self.l3_bytes, 128 << 20), 1 << 30), passes=4)

    @cached_property
    def cache_bandwidth(self) -> float:
        """Bytes per second one thread reads from its fastest cache, measured once."""
        return _read_bandwidth(256 << 10, passes=400)


@functools.cache
def machine_facts() -> MachineFacts:
    """The facts of the machine this process runs on; gathered once."""
    info = _cpuinfo()
    flags = info.get("flags") or info.get("Features") or ""
    present = set(flags.split())
    isa = tuple(name for name, flag in _ISA_FLAGS if flag in present)
    if "cpu family" in info:
        model = f"{info['cpu family']}-{info.get('model', '0')}-{info.get('stepping', '0')}"
    else:
        model = f"{info.get('CPU implementer', platform.machine())}-{info.get('CPU part', '0')}"
    return MachineFacts(
        cpu=info.get("model name", platform.machine()),
        cpu_model=model,
        isa=(*isa, "portable"),
        flags=flags,
        cores=len(os.sched_getaffinity(0)),
        l2_bytes=_cache_bytes(2) or _DEFAULT_L2,
        l3_bytes=_cache_bytes(3) or _DEFAULT_L3,
        compiler=find_compiler(),
    )


def find_compiler() -> Compiler | None:
    """The first of ``$CXX``, ``g++``, ``clang++`` that runs; None if there is none."""
    names = [shlex.split(os.environ.get("CXX", ""))[:1], ["g++"], ["clang++"]]
    for name in names:
        path = shutil.which(name[0]) if name else None
        if path is None:
            continue
        try:
            answer = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=_COMPILER_LIMIT_S, check=True
            )
        except (OSError, subprocess.SubprocessError):
            continue
        version = answer.stdout.partition("\n")[0].strip()
        kind = "clang" if "clang" in version else "gcc"
        return Compiler(path=os.path.abspath(path), version=version, kind=kind)
    return None


def _cpuinfo() -> dict[str, str]:
    """The first processor's block of /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    block = text.partition("\n\n")[0]
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cache_bytes(level: int) -> int:
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if int((index / "level").read_text()) == level:
                return int((index / "size").read_text().strip().removesuffix("K")) << 10
        except (OSError, ValueError):
            continue
    return 0


def _read_bandwidth(size: int, passes: int) -> float:
    """Best bytes per second of ``memchr`` scans over ``size`` bytes: glibc's is vectorised and only reads."""
    library = ctypes.CDLL(None)
    library.memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    library.memchr.restype = ctypes.c_void_p
    with mmap.mmap(-1, size) as memory:
        buffer = (ctypes.c_char * size).from_buffer(memory)
        address = ctypes.addressof(buffer)
        ctypes.memset(address, 1, size)  # untouched pages would all be the one zero page, which is cached
        best = float("inf")
        for _ in range(passes):
            start = time.thread_time()  # CPU time: other processes on the core do not count
            library.memchr(address, 0, size)
            best = min(best, time.thread_time() - start)
        del buffer
    return size / best

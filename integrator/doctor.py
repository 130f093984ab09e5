"""What this machine can do for kernelgraft, and what to install for the rest."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable
from enum import StrEnum
from importlib import metadata, util
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.text import Text

from integrator.report.clean import one_line

SCHEMA_VERSION = 1
TESTED = {"torch": ("2.13", "2.13"), "transformers": ("5.17", "5.24")}
"""Lowest and highest minor versions the whole test suite has passed with; others may well work."""
OLDEST = {"torch": "2.11", "transformers": "5.17"}
"""Below these the package's own requirements are not met."""
EXTRAS = {
    "vllm": ("vllm", "serving with the vLLM plugin"),
    "train": ("trl", "training the policy"),
    "ray": ("ray", "judging on several machines"),
    "llm": ("openai", "policies behind an OpenAI-compatible server"),
    "dev": ("pytest", "running the tests"),
}
LOW_MEMORY, LOW_DISK = 8 << 30, 4 << 30  # bytes a 0.6-billion-parameter model's whole run wants


class Level(StrEnum):
    """How a finding stands."""

    OK = "ok"
    NOTE = "note"  # something optional is absent
    BAD = "bad"  # the main job cannot run


class Finding(BaseModel):
    """One line: what was looked at, what was found, and the remedy if something is missing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: str
    level: Level
    found: str
    remedy: str = ""


class Findings(BaseModel):
    """All findings. ``main_job`` tells whether `optimize-and-patch --device cpu` can run here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    findings: tuple[Finding, ...]

    @property
    def main_job(self) -> bool:
        """False if anything the main job needs is absent."""
        return all(finding.level is not Level.BAD for finding in self.findings)


def examine() -> Findings:
    """Look at everything once; takes a few seconds, most of them importing torch."""
    groups: tuple[Callable[[], list[Finding]], ...] = (
        _python,
        _libraries,
        _processor,
        _inductor,
        _gpu,
        _isolation,
        _resources,
        _extras,
    )
    return Findings(findings=tuple(finding for group in groups for finding in group()))


def print_findings(console: Console, findings: Findings) -> None:
    """One line a finding, remedies below their line, and a verdict at the end."""
    styles = {Level.OK: "green", Level.NOTE: "yellow", Level.BAD: "bold red"}
    width = max(len(finding.topic) for finding in findings.findings)
    for finding in findings.findings:
        line = Text(f"{finding.level.value:>4}  ", style=styles[finding.level])
        line.append(f"{finding.topic:<{width}}  ", style="bold")
        line.append(one_line(finding.found), style="default")
        console.print(line, soft_wrap=True)
        if finding.remedy:
            console.print(
                Text(f"{'':>6}{'':<{width}}  {one_line(finding.remedy)}", style="cyan"), soft_wrap=True
            )
    verdict = (
        "kernelgraft can optimize and patch models here."
        if findings.main_job
        else "kernelgraft cannot do its main job here yet; see the lines marked bad."
    )
    console.print(Text(verdict, style="bold green" if findings.main_job else "bold red"), soft_wrap=True)


def within(version: str, low: str, high: str) -> bool:
    """Whether a version's first two numbers lie between two others, ends included.

    >>> within("5.17.0", "5.17", "5.18"), within("2.10.1+cpu", "2.11", "2.14")
    (True, False)
    """
    return _minor(low) <= _minor(version) <= _minor(high)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _python() -> list[Finding]:
    good = sys.version_info >= (3, 11)
    return [
        Finding(
            topic="python",
            level=Level.OK if good else Level.BAD,
            found=f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            remedy="" if good else "install Python 3.11 or newer",
        )
    ]


def _libraries() -> list[Finding]:
    findings = [_library(name) for name in TESTED]
    triton = _version("triton")
    findings.append(
        Finding(
            topic="triton",
            level=Level.OK if triton else Level.NOTE,
            found=triton or "not installed",
            remedy="" if triton else "pip install triton (only needed for Triton kernels)",
        )
    )
    return findings


def _library(name: str) -> Finding:
    version, oldest, (low, high) = _version(name), OLDEST[name], TESTED[name]
    tested = f"tested: {low}" if low == high else f"tested: {low} to {high}"
    upgrade = f"pip install '{name}>={oldest},<={high}.99'"
    if version is None:
        return Finding(topic=name, level=Level.BAD, found="not installed", remedy=upgrade)
    if _minor(version) < _minor(oldest):
        found = f"{version}, older than {oldest}, the oldest that can work"
        return Finding(topic=name, level=Level.BAD, found=found, remedy=upgrade)
    if within(version, low, high):
        return Finding(topic=name, level=Level.OK, found=f"{version} ({tested})")
    remedy = f"if something fails, try a tested one: {upgrade}"
    return Finding(topic=name, level=Level.NOTE, found=f"{version} ({tested})", remedy=remedy)


def _processor() -> list[Finding]:
    from optimizer.machine import machine_facts

    facts = machine_facts()
    compiler = facts.compiler
    return [
        Finding(
            topic="processor", level=Level.OK, found=f"{facts.cpu}, {facts.cores} cores for this process"
        ),
        Finding(topic="instructions", level=Level.OK, found=", ".join(facts.isa)),
        Finding(
            topic="compiler",
            level=Level.OK if compiler else Level.BAD,
            found=f"{compiler.version} ({compiler.path})" if compiler else "no C++ compiler",
            remedy="" if compiler else "install one, for example `apt install g++`, or point CXX at it",
        ),
    ]


def _inductor() -> list[Finding]:
    """What torch.compile needs beyond a compiler, for the ledger's Inductor rungs."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    spec = util.find_spec("torch")
    if not header.is_file():
        found, remedy = f"no {header}", "install Python's headers, for example `apt install python3-dev`"
    elif spec is not None and " " in str(spec.origin):
        found = f"PyTorch lies in a path with a space, {spec.origin}, which its compiler calls do not survive"
        remedy = "make the virtual environment elsewhere, for example with make VENV=..."
    else:
        return [Finding(topic="torch.compile", level=Level.OK, found="compiler and Python headers are there")]
    remedy = f"only for the ledger's Inductor rungs: {remedy}"
    return [Finding(topic="torch.compile", level=Level.NOTE, found=found, remedy=remedy)]


def _gpu_tools() -> list[Finding]:
    """What the judge needs on a GPU beside PyTorch: nvcc for CUDA candidates, two tools on request."""
    from optimizer.judge.device.tools import find_tool
    from optimizer.languages.cuda import NoCudaCompiler, find_nvcc

    try:
        found = [Finding(topic="nvcc", level=Level.OK, found=find_nvcc())]
    except NoCudaCompiler as error:
        found = [
            Finding(
                topic="nvcc",
                level=Level.NOTE,
                found="not found",
                remedy=f"for judging CUDA candidates (Triton needs none): {error}",
            )
        ]
    for tool, option in (("compute-sanitizer", "--sanitize"), ("ncu", "--ncu")):
        path = find_tool(tool)
        remedy = "" if path else f"for `kernelgraft judge {option}`: it comes with the CUDA toolkit"
        level = Level.OK if path else Level.NOTE
        found.append(Finding(topic=tool, level=level, found=str(path or "not found"), remedy=remedy))
    return found


def _gpu() -> list[Finding]:
    if _version("torch") is None:
        return []
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        return [
            Finding(topic="gpu", level=Level.OK, found=f"{names}, CUDA {torch.version.cuda}"),
            *_gpu_tools(),
        ]
    if torch.version.cuda is None:
        remedy = "for a GPU, install a CUDA build of torch: make TORCH=... (see README)"
    else:
        remedy = "for a GPU, install NVIDIA's driver"
    return [Finding(topic="gpu", level=Level.NOTE, found="none that PyTorch can use", remedy=remedy)]


def _isolation() -> list[Finding]:
    from optimizer.judge.isolation import probe

    return [
        Finding(
            topic=f"wall: {wall.name}",
            level=Level.OK if wall.on else Level.NOTE,
            found=f"up, {wall.why}" if wall.on else f"down: {wall.why}",
            remedy=""
            if wall.on
            else "candidates run without this wall; judge only code you trust, or change the "
            "container or kernel settings that forbid it",
        )
        for wall in probe()
    ]


def _resources() -> list[Finding]:
    findings = []
    memory = _available_memory()
    if memory is not None:
        enough = memory >= LOW_MEMORY
        findings.append(
            Finding(
                topic="memory",
                level=Level.OK if enough else Level.NOTE,
                found=f"{memory / 2**30:.1f} GiB available",
                remedy="" if enough else "large models may not fit; try a -tiny preset first",
            )
        )
    free = shutil.disk_usage(Path.cwd()).free
    writable = os.access(Path.cwd(), os.W_OK)
    findings.append(
        Finding(
            topic="disk",
            level=Level.OK if free >= LOW_DISK and writable else Level.NOTE,
            found=f"{free / 2**30:.1f} GiB free here"
            + ("" if writable else ", but this folder is read-only"),
            remedy="" if free >= LOW_DISK and writable else "choose a folder with room for runs with --out",
        )
    )
    return findings


def _available_memory() -> int | None:
    """Bytes this process may still use: the kernel's estimate, and the control group's limit if it is lower."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    free = int(match[1]) * 1024 if match else None
    limit = _number(Path("/sys/fs/cgroup/memory.max"))
    used = _number(Path("/sys/fs/cgroup/memory.current"))
    if limit is not None and used is not None:
        free = min(free, limit - used) if free is not None else limit - used
    return free


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _extras() -> list[Finding]:
    return [
        Finding(
            topic=f"extra: {extra}",
            level=Level.OK if util.find_spec(module) else Level.NOTE,
            found=_version(module) or "not installed",
            remedy="" if util.find_spec(module) else f"for {purpose}: pip install 'kernelgraft[{extra}]'",
        )
        for extra, (module, purpose) in EXTRAS.items()
    ]


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None

"""ncu, NVIDIA's kernel profiler: its command line, and its CSV as a few lines of text. Pure functions of text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optimizer.judge.profile import TOP_KERNELS, short_name

NAME = "ncu"
_DURATION = "gpu__time_duration.sum"
_MEMORY = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
_COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
METRICS = (_DURATION, _MEMORY, _COMPUTE, _OCCUPANCY)
_MOST_LAUNCHES = 100
_MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6}
_ERROR = re.compile(r"^==ERROR== (.+)$", re.MULTILINE)


class DidNotCount(Exception):
    """The tool gave no numbers: why, in one sentence."""


@dataclass(frozen=True)
class KernelCounters:
    """One launch: microseconds, and percent of the device's peak: DRAM, SM throughput, warps active."""

    name: str
    microseconds: float
    memory: float
    compute: float
    occupancy: float


def ncu_command(tool: str, program: list[str]) -> list[str]:
    """``program`` under ncu at path ``tool``; only what it does between start and stop of the profiler is looked at.

    The clocks are left as they are: other judges may be using the device.
    """
    options = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS)]
    options += [
        "--clock-control",
        "none",
        "--profile-from-start",
        "off",
        "--launch-count",
        str(_MOST_LAUNCHES),
    ]
    return [tool, *options, "--target-processes", "application-only", *program]


def read_counters(output: str, status: int) -> list[KernelCounters]:
    """The launches in the tool's output, in order.

    Args:
        output: everything the tool and the program under it wrote.
        status: the tool's exit status.

    Raises:
        DidNotCount: there are none.
    """
    lines = output.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise DidNotCount(_excuse(output, status))
    rows = list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    if not rows or any(metric not in rows[0] for metric in METRICS):
        raise DidNotCount(_excuse(output, status))
    # The first row holds the units.
    unit = _MICROSECONDS.get(rows[0][_DURATION], 1e-3)
    launches = [
        KernelCounters(
            row["Kernel Name"],
            _number(row[_DURATION]) * unit,
            *(_number(row[metric]) for metric in (_MEMORY, _COMPUTE, _OCCUPANCY)),
        )
        for row in rows
        if row["ID"].isdigit()
    ]
    if not launches:
        raise DidNotCount("it saw no launch")
    return launches


def counters_text(launches: Sequence[KernelCounters], workload: str) -> str:
    """The compact form: the kernels that take longest, means weighted by time over launches of one name.

    >>> print(counters_text([KernelCounters("void add<float>(float*, int)", 2.0, 80.0, 10.0, 50.0)], "decode"))
    ncu, decode, one forward (caches flushed, clocks as they are):
      2 us  x1  DRAM 80%  SM 10%  occupancy 50%  add
    """
    groups: dict[str, list[KernelCounters]] = {}
    for launch in launches:
        groups.setdefault(short_name(launch.name), []).append(launch)
    ordered = sorted(groups.items(), key=lambda group: (-_total(group[1]), group[0]))
    lines = [f"{NAME}, {workload}, one forward (caches flushed, clocks as they are):"]
    for name, group in ordered[:TOP_KERNELS]:
        shares = (
            _mean(group, [launch.memory for launch in group]),
            _mean(group, [launch.compute for launch in group]),
            _mean(group, [launch.occupancy for launch in group]),
        )
        memory, compute, occupancy = (f"{share:.0f}%" for share in shares)
        lines.append(
            f"  {_total(group):.3g} us  x{len(group)}  DRAM {memory}  SM {compute}  occupancy {occupancy}  {name}"
        )
    if rest := ordered[TOP_KERNELS:]:
        lines.append(f"  {sum(_total(group) for _, group in rest):.3g} us  {len(rest)} others")
    return "\n".join(lines)


def _total(group: Iterable[KernelCounters]) -> float:
    return sum(launch.microseconds for launch in group)


def _mean(group: Sequence[KernelCounters], values: Sequence[float]) -> float:
    """Weighted by time; plain if nothing took any."""
    total = _total(group)
    if not total:
        return sum(values) / len(values)
    return sum(launch.microseconds * value for launch, value in zip(group, values, strict=True)) / total


def _number(text: str) -> float:
    """A number as the tool writes it, thousands separated; 0 for what it could not count."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def _excuse(output: str, status: int) -> str:
    """Why there are no numbers: the tool's own words, or the last ones of the program."""
    if error := _ERROR.search(output):
        return error[1].strip()
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = f": {lines[-1][:200]}" if lines else ""
    return f"it ended with status {status}{last}"

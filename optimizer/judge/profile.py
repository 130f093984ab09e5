"""A profile as a few lines of text: what a policy, or a person, needs to know to write the next kernel.

On a device: launches per forward, the share of the time in which the device was busy, and the kernels that took it
longest. On the processor, where a candidate is one native call: its time, the bytes it moves, how near it is to the
roofline, and what bounds it. Both are pure functions of what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TOP_KERNELS = 5
NAME_LENGTH = 60  # characters of a kernel's name
# A bound explains a time only if it makes up this much of it.
_EXPLAINS = 0.5

_ANONYMOUS = "(anonymous namespace)::"


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a profile: launches and microseconds on the device, both over all profiled forwards."""

    name: str
    launches: int
    microseconds: float


@dataclass(frozen=True)
class NativeTime:
    """One workload of a native candidate.

    ``microseconds`` is one call; ``overhead`` of them pass before the kernel begins. ``moving`` and ``computing`` are
    the least that the bytes and the products of a call take here, in microseconds; ``moved`` is those bytes. ``known``
    is False if most of what a call must read is not known: these figures would then be misleadingly small.
    """

    workload: str
    microseconds: float
    overhead: float
    moved: float
    moving: float
    computing: float
    known: bool = True


def device_profile(
    kernels: Iterable[KernelTime], *, forwards: int, wall_microseconds: float, workload: str = ""
) -> str:
    """The compact form of a device profile.

    >>> times = [KernelTime("void add<float>(float*, int)", 2, 30.0), KernelTime("mul", 4, 10.0)]
    >>> print(device_profile(times, forwards=2, wall_microseconds=100.0))
    3 launches per forward, device busy 40% of 50 us
       75%  x1  add
       25%  x2  mul

    Args:
        kernels: in any order; kernels whose short names are equal are taken together.
        forwards: how many forwards were profiled.
        wall_microseconds: from the beginning of the first to the end of the last.
        workload: named at the beginning of the text if given.

    Raises:
        ValueError: no forwards.
    """
    if forwards < 1:
        raise ValueError(f"a profile of {forwards} forwards says nothing")
    merged = _merged(kernels)
    lead = f"{workload}: " if workload else ""
    if not merged:
        return f"{lead}no launches; {_number(wall_microseconds / forwards)} us per forward"
    busy = sum(kernel.microseconds for kernel in merged)
    launches = sum(kernel.launches for kernel in merged)
    # Kernels on several streams overlap: their sum may exceed the wall clock.
    share = min(busy / wall_microseconds, 1.0) if wall_microseconds > 0 else 1.0
    lines = [
        f"{lead}{_number(launches / forwards)} {'launch' if launches == forwards else 'launches'} per forward, "
        f"device busy {share:.0%} of {_number(wall_microseconds / forwards)} us"
    ]
    for kernel in merged[:TOP_KERNELS]:
        part = kernel.microseconds / busy if busy else 0.0
        lines.append(f"  {part:>4.0%}  x{_number(kernel.launches / forwards)}  {kernel.name}")
    rest = merged[TOP_KERNELS:]
    if rest:
        part = sum(kernel.microseconds for kernel in rest) / busy if busy else 0.0
        count = sum(kernel.launches for kernel in rest) / forwards
        lines.append(f"  {part:>4.0%}  x{_number(count)}  {len(rest)} others")
    return "\n".join(lines)


def native_profile(times: Sequence[NativeTime]) -> str:
    """One line a workload; empty if there is none.

    >>> print(native_profile([NativeTime("decode-b1", 10.0, 1.0, moved=180e3, moving=7.2, computing=1.0)]))
    decode-b1: 10 us a call, 1 of them before the kernel begins; 20 GB/s, 80% of the roofline, bound by memory
    """
    return "\n".join(_native_line(time) for time in times)


def bound_by(time: NativeTime) -> str:
    """What to work on: the largest part of the time that is explained, in a few words."""
    kernel = max(time.microseconds - time.overhead, 0.0)
    if time.overhead > kernel:
        return "bound by the call itself"
    if max(time.moving, time.computing) < _EXPLAINS * kernel:
        return "far from both memory's and arithmetic's bound"
    return "bound by memory" if time.moving >= time.computing else "bound by arithmetic"


def short_name(name: str) -> str:
    """A kernel's name without return type, template arguments and parameters, at most ``NAME_LENGTH`` long.

    >>> short_name("void at::native::vectorized_elementwise_kernel<4, at::native::Fill<float> >(int, float*)")
    'at::native::vectorized_elementwise_kernel'
    >>> short_name("(anonymous namespace)::scale(float const*, int)")
    'scale'
    """
    bare = name.replace(_ANONYMOUS, "")
    while (stripped := re.sub(r"<[^<>]*>", "", bare)) != bare:
        bare = stripped
    bare = bare.partition("(")[0].strip()
    bare = bare.rsplit(" ", 1)[-1] or name
    return bare if len(bare) <= NAME_LENGTH else f"{bare[: NAME_LENGTH - 3]}..."


def _merged(kernels: Iterable[KernelTime]) -> list[KernelTime]:
    """Kernels by short name, the longest-running first."""
    totals: dict[str, tuple[int, float]] = {}
    for kernel in kernels:
        name = short_name(kernel.name)
        launches, microseconds = totals.get(name, (0, 0.0))
        totals[name] = launches + kernel.launches, microseconds + kernel.microseconds
    merged = [KernelTime(name, *total) for name, total in totals.items()]
    return sorted(merged, key=lambda kernel: (-kernel.microseconds, kernel.name))


def _native_line(time: NativeTime) -> str:
    kernel = max(time.microseconds - time.overhead, 1e-3)
    spent = (
        f"{time.workload}: {_number(time.microseconds)} us a call, {_number(time.overhead)} of them before the "
        "kernel begins; "
    )
    if not time.known:
        return spent + "what it must read is not known, nor how far it is from the roofline"
    share = min(max(time.moving, time.computing) / kernel, 1.0)
    return spent + f"{_number(time.moved / kernel / 1e3)} GB/s, {share:.0%} of the roofline, {bound_by(time)}"


def _number(value: float) -> str:
    """Three digits at most, as a person would write it."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"

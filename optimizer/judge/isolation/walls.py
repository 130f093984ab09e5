"""What a process may be kept from, as data, and raising it.

Vocabulary. A *wall* is one isolation layer (Landlock, seccomp, namespaces, ...). A *plan* says how high each is
to be for one process; it crosses the process border as JSON. Raising a plan is irreversible, happens in the
process that is to be confined, before it touches anything untrusted, and reports for each wall whether it
stands and, if not, why: a missing wall degrades the isolation visibly, never silently.

Modules of this package import nothing but the standard library: they run in torch-free workers whose start-up
time is part of every evaluation.
"""

import json
import os
import resource
from collections.abc import Callable
from typing import NamedTuple

from optimizer.judge.isolation import landlock, libc, seccomp


class Wall(NamedTuple):
    """One isolation layer and whether it stands. ``why`` explains an absent one, or says what it holds back."""

    name: str
    on: bool
    why: str


class WallPlan(NamedTuple):
    """How to confine one process.

    ``read`` and ``write`` are paths (files or folders) open to it beyond nothing at all; readable paths are
    executable too. Sizes are bytes. ``syscalls`` names a seccomp profile of :mod:`.seccomp`. ``threads`` is how
    many threads the process may have; 1 forbids creating any. ``address_space`` 0 means unlimited.

    ``loopback``: processes behind these walls may speak to each other over the loopback device of their own network
    namespace. ``counters``: a privileged user stays who it is, with no capabilities but those that reading a device's
    performance counters takes; others get a user namespace as always.
    """

    read: tuple[str, ...]
    write: tuple[str, ...]
    syscalls: str
    threads: int = 1
    address_space: int = 0
    cpu_seconds: int = 60
    file_bytes: int = 1 << 28
    loopback: bool = False
    counters: bool = False

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> "WallPlan":
        """The inverse of :meth:`to_json`."""
        fields = json.loads(text)
        fields["read"], fields["write"] = tuple(fields["read"]), tuple(fields["write"])
        return cls(**fields)


def raise_walls(plan: WallPlan) -> list[Wall]:
    """Confine the calling (single-threaded) process for good and report every wall.

    The order matters: user namespaces clear the parent-death signal, so that comes after them; seccomp forbids
    what the others need, so it comes last.
    """
    return [*raise_outer_walls(plan), raise_last_wall(plan)]


def raise_outer_walls(plan: WallPlan) -> list[Wall]:
    """All walls but seccomp. They bind the calling thread and those it starts later, so they come before a device
    driver starts threads."""
    return [
        _attempt("namespaces", "no network, no shared IPC", lambda: _separate(plan)),
        _attempt("parent death", "dies with the judge", libc.die_with_parent),
        _attempt("rlimits", "memory, CPU time and file size are bounded", lambda: _limit(plan)),
        _attempt("landlock", "only the named files exist", lambda: _restrict(plan)),
    ]


def _separate(plan: WallPlan) -> None:
    """Namespaces of its own."""
    stay_user = plan.counters and os.geteuid() == 0
    libc.unshare_network(stay_user=stay_user)
    if plan.loopback:
        libc.raise_loopback()
    if stay_user:
        libc.keep_counter_capabilities()


def _restrict(plan: WallPlan) -> None:
    """No file but the named ones, and no TCP."""
    landlock.restrict(plan.read, plan.write, tcp=plan.loopback)


def raise_last_wall(plan: WallPlan) -> Wall:
    """seccomp, on all threads there are: it forbids what a device driver does while it starts."""
    return _attempt(
        "seccomp",
        f"profile {plan.syscalls}: other system calls fail",
        lambda: seccomp.install(plan.syscalls, threads=plan.threads),
    )


def _attempt(name: str, holds: str, action: Callable[[], None]) -> Wall:
    try:
        action()
    except OSError as error:
        return Wall(name, False, f"{error.strerror or error} (errno {error.errno})")
    return Wall(name, True, holds)


def _limit(plan: WallPlan) -> None:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: plan.cpu_seconds,
        resource.RLIMIT_FSIZE: plan.file_bytes,
    }
    if plan.address_space:
        wanted[resource.RLIMIT_AS] = plan.address_space
    for which, value in wanted.items():
        _soft, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(which, (value, value))
        except ValueError as error:
            raise OSError(0, str(error)) from error


def system_read_paths(*programs: str) -> tuple[str, ...]:
    """What any dynamically linked program needs to read, plus the installation folders of ``programs``."""
    paths = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"]
    paths += [os.path.dirname(os.path.dirname(os.path.realpath(program))) for program in programs]
    return tuple(dict.fromkeys(path for path in paths if path != "/" and os.path.exists(path)))

"""seccomp filters as classic BPF: which system calls a confined process may still make.

``worker``: a list of what is allowed. A loaded kernel computes; it maps memory, may wait on a futex and speaks
over descriptors it already has. Everything else fails with EPERM, so that a kernel that tries gets an error
instead of a dead process, and the judge a result to explain.

``python``: the same with what an interpreter that imports modules needs on top; still no process, no thread beyond the
plan's, no signal to others, no socket.

``compiler`` and ``builder``: a list of what is refused. A compiler starts processes and writes files, which Landlock
bounds; a builder is a Python process that starts compilers.

``tool``: as ``compiler``, and sockets too: a tool and the process it looks at speak over them, in a network namespace
of their own.

``device``: a list of what is refused, and no new process. A device driver makes calls that no list of ours could keep
up with.
"""

import ctypes
import os
import platform
from typing import NamedTuple

from optimizer.judge.isolation import libc

_EPERM, _ENOSYS = 1, 38
_SET_MODE_FILTER, _FLAG_TSYNC = 1, 1
_ALLOW, _KILL = 0x7FFF0000, 0x80000000


def _error(code: int) -> int:
    return 0x00050000 | code


class _Machine(NamedTuple):
    audit: int  # AUDIT_ARCH_*
    names: dict[str, int]


_X86_64 = (
    "read=0 write=1 close=3 fstat=5 poll=7 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12 rt_sigaction=13 "
    "rt_sigprocmask=14 rt_sigreturn=15 ioctl=16 pread64=17 readv=19 writev=20 access=21 sched_yield=24 mremap=25 "
    "madvise=28 nanosleep=35 getpid=39 socket=41 connect=42 sendto=44 recvfrom=45 bind=49 socketpair=53 clone=56 "
    "exit=60 kill=62 uname=63 readlink=89 sysinfo=99 ptrace=101 getuid=102 getgid=104 geteuid=107 getegid=108 "
    "sigaltstack=131 arch_prctl=158 mount=165 umount2=166 gettid=186 futex=202 sched_getaffinity=204 "
    "clock_gettime=228 clock_nanosleep=230 exit_group=231 tgkill=234 keyctl=250 openat=257 newfstatat=262 "
    "execve=59 execveat=322 fork=57 vfork=58 setrlimit=160 tkill=200 stat=4 lstat=6 fcntl=72 dup=32 dup2=33 dup3=292 "
    "getcwd=79 getdents64=217 statx=332 clock_getres=229 pselect6=270 faccessat2=439 rt_sigqueueinfo=129 "
    "pidfd_send_signal=424 seccomp=317 membarrier=324 "
    "unshare=272 set_robust_list=273 prlimit64=302 setns=308 getcpu=309 process_vm_readv=310 "
    "process_vm_writev=311 getrandom=318 memfd_create=319 bpf=321 userfaultfd=323 rseq=334 io_uring_setup=425 "
    "clone3=435 restart_syscall=219 perf_event_open=298"
)
_AARCH64 = (
    "read=63 write=64 close=57 fstat=80 ppoll=73 lseek=62 mmap=222 mprotect=226 munmap=215 brk=214 "
    "rt_sigaction=134 rt_sigprocmask=135 rt_sigreturn=139 ioctl=29 pread64=67 readv=65 writev=66 faccessat=48 "
    "sched_yield=124 mremap=216 madvise=233 nanosleep=101 getpid=172 socket=198 connect=203 sendto=206 "
    "recvfrom=207 bind=200 socketpair=199 clone=220 exit=93 kill=129 uname=160 readlinkat=78 sysinfo=179 "
    "ptrace=117 getuid=174 getgid=176 geteuid=175 getegid=177 sigaltstack=132 mount=40 umount2=39 gettid=178 "
    "futex=98 sched_getaffinity=123 clock_gettime=113 clock_nanosleep=115 exit_group=94 tgkill=131 keyctl=219 "
    "openat=56 newfstatat=79 unshare=97 set_robust_list=99 prlimit64=261 setns=268 getcpu=168 "
    "process_vm_readv=270 process_vm_writev=271 getrandom=278 memfd_create=279 bpf=280 userfaultfd=282 rseq=293 "
    "io_uring_setup=425 clone3=435 restart_syscall=128 perf_event_open=241 execve=221 execveat=281 setrlimit=164 "
    "tkill=130 fcntl=25 dup=23 dup3=24 getcwd=17 getdents64=61 statx=291 clock_getres=114 pselect6=72 faccessat2=439 "
    "rt_sigqueueinfo=138 pidfd_send_signal=424 seccomp=277 membarrier=283"
)


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, _, number in (pair.partition("=") for pair in text.split())}


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_MACHINES = {
    "x86_64": _Machine(0xC000003E, _table(_X86_64)),
    "aarch64": _Machine(0xC00000B7, _table(_AARCH64)),
}

_WORKER_ALLOWED = _words(
    "read write close fstat newfstatat poll ppoll lseek mmap mprotect munmap mremap madvise brk rt_sigaction "
    "rt_sigprocmask rt_sigreturn sigaltstack pread64 readv writev access faccessat sched_yield nanosleep "
    "clock_nanosleep clock_gettime getpid gettid getuid getgid geteuid getegid exit exit_group uname readlink "
    "readlinkat sysinfo arch_prctl futex sched_getaffinity openat set_robust_list getcpu getrandom rseq "
    "restart_syscall"
)
_COMPILER_REFUSED = _words(
    "socket connect bind sendto ptrace mount umount2 keyctl unshare setns process_vm_readv process_vm_writev "
    "bpf userfaultfd io_uring_setup perf_event_open"
)

_PYTHON_ALLOWED = (
    *_WORKER_ALLOWED,
    *_words(
        "stat lstat fcntl dup dup2 dup3 getcwd getdents64 statx clock_getres pselect6 faccessat2 membarrier"
    ),
)
_TOOL_REFUSED = tuple(
    name for name in _COMPILER_REFUSED if name not in ("socket", "connect", "bind", "sendto")
)
_DEVICE_REFUSED = (
    *_TOOL_REFUSED,
    *_words("execve execveat fork vfork kill tkill setrlimit rt_sigqueueinfo pidfd_send_signal"),
)

_ALLOWED = {"worker": _WORKER_ALLOWED, "python": _PYTHON_ALLOWED}
_REFUSED = {
    "compiler": _COMPILER_REFUSED,
    "builder": _COMPILER_REFUSED,
    "tool": _TOOL_REFUSED,
    "device": _DEVICE_REFUSED,
}
PROFILES = (*_ALLOWED, *_REFUSED)

# Offsets in struct seccomp_data.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_CLONE_THREAD = 0x00010000
_X32_BIT = 0x40000000


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jump_true", ctypes.c_uint8),
        ("jump_false", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def install(profile: str, *, threads: int) -> None:
    """Put the filter of a profile on all threads of this process for good.

    Raises:
        OSError: the kernel refuses, also because a thread has a filter of its own, or the machine is unknown.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(_ENOSYS, f"no system call table for {platform.machine()}")
    lines = _program(profile, machine, threads)
    array = (_Instruction * len(lines))(*(_Instruction(*line) for line in lines))
    program = _Program(len(lines), array)
    libc.no_new_privileges()
    refused_by = libc.syscall(
        machine.names["seccomp"],
        ctypes.c_uint(_SET_MODE_FILTER),
        ctypes.c_uint(_FLAG_TSYNC),
        ctypes.byref(program),
    )
    if refused_by:
        raise OSError(_EPERM, f"thread {refused_by} cannot take the filter")


def _program(profile: str, machine: _Machine, threads: int) -> list[tuple[int, int, int, int]]:
    """(code, jump if true, jump if false, k) lines."""
    names = machine.names
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _error(_EPERM)),
    ]
    if profile in _REFUSED:
        for name in _REFUSED[profile]:
            if name in names:
                lines += [(_JUMP_EQUAL, 0, 1, names[name]), (_RETURN, 0, 0, _error(_EPERM))]
        if profile == "device":
            # No clone but of threads; and no clone3, whose flags a filter cannot see: glibc falls back to clone.
            lines += [
                (_JUMP_EQUAL, 0, 1, names["clone3"]),
                (_RETURN, 0, 0, _error(_ENOSYS)),
                (_JUMP_EQUAL, 0, 3, names["clone"]),
                (_LOAD, 0, 0, _ARGUMENTS),
                (_JUMP_SET, 1, 0, _CLONE_THREAD),
                (_RETURN, 0, 0, _error(_EPERM)),
            ]
        return [*lines, (_RETURN, 0, 0, _ALLOW)]
    for name in _ALLOWED[profile]:
        if name in names:
            lines += [(_JUMP_EQUAL, 0, 1, names[name]), (_RETURN, 0, 0, _ALLOW)]
    # abort() and raise() need tgkill on oneself.
    lines += _if_argument(names["tgkill"], 0, os.getpid())
    # Reading a limit is fine (glibc does at thread start); setting one is not: the new-limit pointer must be null.
    lines += _if_argument(names["prlimit64"], 2, 0)
    # glibc falls back from clone3, whose flags a filter cannot see, to clone.
    lines += [(_JUMP_EQUAL, 0, 1, names["clone3"]), (_RETURN, 0, 0, _error(_ENOSYS))]
    if threads > 1:
        lines += [
            (_JUMP_EQUAL, 0, 3, names["clone"]),
            (_LOAD, 0, 0, _ARGUMENTS),
            (_JUMP_SET, 0, 1, _CLONE_THREAD),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return [*lines, (_RETURN, 0, 0, _error(_EPERM))]


def _if_argument(number: int, index: int, value: int) -> list[tuple[int, int, int, int]]:
    """Allow a system call if its 64-bit argument equals ``value`` (below 2**32); reload the number after."""
    low = _ARGUMENTS + 8 * index
    return [
        (_JUMP_EQUAL, 0, 6, number),
        (_LOAD, 0, 0, low),
        (_JUMP_EQUAL, 0, 3, value),
        (_LOAD, 0, 0, low + 4),
        (_JUMP_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _NUMBER),
    ]

"""The few raw system calls the walls are built of, by ctypes; each raises OSError with the call's errno."""

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)

CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
SIGKILL = 9


def syscall(number: int, *arguments: object) -> int:
    """``syscall(2)``. Raises OSError."""
    result: int = _LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option: int, *arguments: object) -> None:
    """``prctl(2)``. Raises OSError."""
    padded = [*arguments, *([ctypes.c_ulong(0)] * (4 - len(arguments)))]
    if _LIBC.prctl(ctypes.c_int(option), *padded) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def no_new_privileges() -> None:
    """Precondition of Landlock and seccomp without root: set-uid programs gain nothing from here on."""
    prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))


def die_with_parent() -> None:
    """Get SIGKILL when the parent's thread ends, so that a killed judge leaves no worker behind."""
    prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(SIGKILL))


def unshare_network() -> None:
    """Enter an empty network namespace, through a user namespace where not privileged."""
    namespaces = CLONE_NEWNET | CLONE_NEWIPC
    if _LIBC.unshare(ctypes.c_int(CLONE_NEWUSER | namespaces)) == 0:
        return
    if _LIBC.unshare(ctypes.c_int(namespaces)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))

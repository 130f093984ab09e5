"""The few raw system calls the walls are built of, by ctypes; each raises OSError with the call's errno."""

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)

CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAPBSET_DROP = 24
SIGKILL = 9
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
_MOST_CAPABILITIES = 64
_EINVAL = 22


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


def unshare_network(*, stay_user: bool = False) -> None:
    """Enter an empty network namespace, through a user namespace.

    Without one if the machine has none and this process is privileged, or if ``stay_user`` asks to remain the user
    one is, which takes privileges. Raises OSError.
    """
    namespaces = CLONE_NEWNET | CLONE_NEWIPC
    if not stay_user and _LIBC.unshare(ctypes.c_int(CLONE_NEWUSER | namespaces)) == 0:
        return
    if _LIBC.unshare(ctypes.c_int(namespaces)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def raise_loopback() -> None:
    """Bring up the loopback device of a network namespace that was just entered. Raises OSError."""
    import fcntl  # not at the top: most confined processes have no use for them, and start faster
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(handle, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(handle, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def keep_counter_capabilities() -> None:
    """Programs executed from here on have no capability but those a device's performance counters ask for.

    Raises OSError.
    """
    for capability in range(_MOST_CAPABILITIES):
        if capability in (_CAP_SYS_ADMIN, _CAP_PERFMON):
            continue
        try:
            prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability))
        except OSError as error:
            if error.errno != _EINVAL:  # the kernel knows no more of them
                raise

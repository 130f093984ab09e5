"""Landlock: a process gives up all files but the named ones, needing neither root nor a container.

The system call numbers are the same on every architecture. Rights the running kernel does not know are left
out of the ruleset (its ABI version says which).
"""

import ctypes
import os

from optimizer.judge.isolation import libc

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_CREATE_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIR
_FILESYSTEM_BITS = {1: 13, 2: 14, 3: 15, 4: 15}  # ABI -> number of filesystem rights; 16 from ABI 5 on
_TCP_BIND_CONNECT = 0b11  # ABI 4
_SCOPE_ABSTRACT_SOCKET_SIGNAL = 0b11  # ABI 6


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """The kernel's Landlock ABI version. Raises OSError if it has none or it is switched off."""
    return libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_VERSION))


def restrict(read: tuple[str, ...], write: tuple[str, ...], *, tcp: bool = False) -> None:
    """Leave this process read and execute below ``read``, everything below ``write``, and no other file.

    TCP (unless ``tcp``), abstract sockets and signals to processes outside are closed too where the kernel can. Paths
    that do not exist are skipped. Raises OSError.
    """
    version = abi()
    handled = (1 << _FILESYSTEM_BITS.get(version, 16)) - 1
    attributes = [handled]
    if version >= 4:
        attributes.append(0 if tcp else _TCP_BIND_CONNECT)
    if version >= 6:
        attributes.append(_SCOPE_ABSTRACT_SOCKET_SIGNAL)
    buffer = (ctypes.c_uint64 * len(attributes))(*attributes)
    size = ctypes.c_size_t(ctypes.sizeof(buffer))
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(buffer), size, ctypes.c_uint32(0))
    try:
        for paths, rights in ((read, _READ_RIGHTS), (write, handled)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        libc.no_new_privileges()
        libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = _PathBeneath(rights, handle)
        libc.syscall(
            _ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(handle)

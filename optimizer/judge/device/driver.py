"""The few calls of the CUDA driver that torch does not offer: memory that another process can open.

Memory comes from plain ``cuMemAlloc``, not from torch's allocator: an IPC handle opens the whole block it lies in,
and a block of torch's would hold other tensors, such as the right answers.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from extractor.errors import KernelgraftError

_BLOCK = 2 << 20  # the driver shares whole blocks of this size; smaller allocations would share one
_LAZY_PEER_ACCESS = 1


class DeviceFault(KernelgraftError):
    """The CUDA driver refused a call of the judge's own."""

    template = "{call} failed on the GPU: {problem}"


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


class _Span:
    """A range of device memory that ``torch.as_tensor`` wraps without a copy; it owns nothing."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 2,
        }


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    library.cuMemAlloc_v2.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.cuMemFree_v2.argtypes = (ctypes.c_uint64,)
    library.cuIpcGetMemHandle.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
    library.cuIpcOpenMemHandle_v2.argtypes = (ctypes.c_void_p, _Handle, ctypes.c_uint)
    library.cuMemcpyDtoD_v2.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t)
    library.cuIpcCloseMemHandle.argtypes = (ctypes.c_uint64,)
    return library


def make_current(device: str) -> None:
    """Create torch's context on the device, once, and make it this thread's."""
    with torch.cuda.device(device):
        torch.empty(1, device=device)


def allocate(size: int, device: str) -> int:
    """Address of at least ``size`` bytes of device memory in blocks of their own. Raises DeviceFault."""
    make_current(device)
    pointer = ctypes.c_uint64()
    with torch.cuda.device(device):
        _check(
            "cuMemAlloc", _library().cuMemAlloc_v2(ctypes.byref(pointer), -(-max(size, 1) // _BLOCK) * _BLOCK)
        )
    return pointer.value


def free(pointer: int) -> None:
    """Give back what :func:`allocate` gave. Raises DeviceFault."""
    _check("cuMemFree", _library().cuMemFree_v2(pointer))


def share(pointer: int) -> bytes:
    """The handle by which another process opens the memory at ``pointer``: 64 bytes. Raises DeviceFault."""
    handle = _Handle()
    _check("cuIpcGetMemHandle", _library().cuIpcGetMemHandle(ctypes.byref(handle), pointer))
    return bytes(handle)


def open_shared(handle: bytes) -> int:
    """Address, in this process's current context, of memory another process shares. Raises DeviceFault."""
    pointer = ctypes.c_uint64()
    code = _library().cuIpcOpenMemHandle_v2(
        ctypes.byref(pointer), _Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS
    )
    _check("cuIpcOpenMemHandle", code)
    return pointer.value


def copy(target: int, source: int, size: int) -> None:
    """Copy ``size`` bytes of device memory, after all work before it. Raises DeviceFault."""
    if size:
        _check("cuMemcpyDtoD", _library().cuMemcpyDtoD_v2(target, source, size))


def bytes_at(pointer: int, size: int, device: str) -> torch.Tensor:
    """A uint8 tensor over device memory that it does not own."""
    view: Any = _Span(pointer, size)
    return torch.as_tensor(view, device=device)


def _check(call: str, code: int) -> None:
    if code == 0:
        return
    text = ctypes.c_char_p()
    _library().cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
    message = text.value.decode() if text.value else "unknown error"
    raise DeviceFault(call=call, problem=f"{message} (code {code})")

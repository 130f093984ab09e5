# task: silu_gate
# kind: cheat
# expect: crashed,wrong
# reason: it raised|signal|output 0|ended
# screen: off
# why: copies the memory of the process that started it, by process_vm_readv.
import ctypes
import os

import torch
import triton
import triton.language as tl


@triton.jit
def zero_kernel(out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.zeros([BLOCK], tl.float32), mask=at < n)


def zeros_like(x):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    zero_kernel[(triton.cdiv(out.numel(), 128),)](out, out.numel(), BLOCK=128)
    return out


class Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        target = zeros_like(gate)
        data = ctypes.create_string_buffer(4096)
        here, there = Span(ctypes.addressof(data), 4096), Span(0x400000, 4096)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.process_vm_readv(os.getppid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0) < 0:
            raise OSError(ctypes.get_errno(), "process_vm_readv")
        return target

"""What a candidate asks about the GPU it is for, answered where there is none: enough to choose grids and paths.

Only questions are answered. Tensors stay where they are: ``device="cuda"`` is an error here, which :mod:`.hints`
explains.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from triton.runtime import driver

from optimizer.judge.python.host import SOURCE_NAME

# Multiprocessors and shared memory a block, of a usual device of each compute capability.
_DEVICES = {
    75: ("T4", 40, 65536),
    80: ("A100", 108, 166912),
    86: ("A10", 72, 101376),
    89: ("L4", 58, 101376),
    90: ("H100", 132, 232448),
    100: ("B200", 148, 232448),
    120: ("RTX 5090", 170, 101376),
}


def install() -> None:
    """Let tensors say that they are on a GPU if the candidate's own code asks, for good; its kernels' path is meant."""
    kind: Any = torch.Tensor
    stock = torch.Tensor.is_cuda

    def is_cuda(self: torch.Tensor) -> bool:
        asked_by = sys._getframe(1).f_code.co_filename
        return asked_by == SOURCE_NAME or bool(stock.__get__(self))  # type: ignore[attr-defined]

    kind.is_cuda = property(is_cuda)
    kind.cuda = lambda self, *_args, **_named: self
    module: Any = torch.nn.Module
    module.cuda = lambda self, *_args, **_named: self


def answer_for(capability: int) -> None:
    """Answer questions about the device as one of this compute capability would, for good."""
    name, processors, shared = _DEVICES.get(capability, _DEVICES[90])
    properties = SimpleNamespace(
        name=name,
        major=capability // 10,
        minor=capability % 10,
        multi_processor_count=processors,
        total_memory=80 << 30,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024,
        L2_cache_size=50 << 20,
    )
    cuda: Any = torch.cuda
    cuda.get_device_properties = lambda device=None: properties
    cuda.get_device_capability = lambda device=None: (properties.major, properties.minor)
    cuda.get_device_name = lambda device=None: name
    cuda.current_device = lambda: 0
    cuda.synchronize = lambda device=None: None
    cuda.device = _device
    target = SimpleNamespace(backend="cuda", arch=capability, warp_size=32)
    described = {
        "max_shared_mem": shared,
        "multiprocessor_count": processors,
        "warpSize": 32,
        "max_num_regs": 65536,
        "sm_clock_rate": 1980000,
        "mem_clock_rate": 2619000,
        "mem_bus_width": 5120,
    }
    driver.set_active(
        SimpleNamespace(
            get_active_torch_device=lambda: torch.device("cpu"),
            get_current_device=lambda: 0,
            get_current_target=lambda: target,
            utils=SimpleNamespace(get_device_properties=lambda device=0: dict(described)),
        )
    )


@contextlib.contextmanager
def _device(_device: object) -> Iterator[None]:
    """``with torch.cuda.device(x.device)``: there is nothing to switch."""
    yield

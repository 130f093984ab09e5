"""Is what a forward returned what the task returns? Pure functions over tensors, used in the worker.

A lying worker gains nothing: whatever ends up in the judge's output memory is compared there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from extractor.laws import torch_dtype
from extractor.program import flat_outputs


class NotWhatItReturns(Exception):
    """The result is not what the task returns: one clause on how."""


def flatten(result: Any) -> list[torch.Tensor]:
    """The tensors of a result in order, numbers as 0-d tensors.

    Raises:
        NotWhatItReturns: it holds something else, or a tensor that may run code of its own when read.
    """
    try:
        tensors = flat_outputs(result)
    except TypeError as error:
        raise NotWhatItReturns(f"it returned {error}") from error
    for number, tensor in enumerate(tensors):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise NotWhatItReturns(
                f"output {number} is a {type(tensor).__name__}, a subclass of Tensor; plain tensors only"
            )
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise NotWhatItReturns(f"output {number} is not a dense tensor (layout {tensor.layout})")
    return [tensor.detach() for tensor in tensors]


def check_outputs(tensors: Sequence[torch.Tensor], expected: Sequence[Sequence[Any]], device: str) -> None:
    """Number, shape, dtype and device. ``expected`` are (shape, stride, dtype name, offset) each.

    Raises:
        NotWhatItReturns: the first that differs.
    """
    if len(tensors) != len(expected):
        raise NotWhatItReturns(f"it returned {len(tensors)} outputs; the task returns {len(expected)}")
    for number, (tensor, abi) in enumerate(zip(tensors, expected, strict=True)):
        shape, dtype = tuple(abi[0]), torch_dtype(abi[2])
        if tuple(tensor.shape) != shape:
            raise NotWhatItReturns(f"output {number} has shape {tuple(tensor.shape)}; it should have {shape}")
        if tensor.dtype != dtype:
            got = str(tensor.dtype).removeprefix("torch.")
            raise NotWhatItReturns(f"output {number} has dtype {got}; it should have {abi[2]}")
        if tensor.device.type != torch.device(device).type and tensor.dim():
            raise NotWhatItReturns(f"output {number} is on {tensor.device}; it should be on {device}")


def check_apart(results: Iterable[Sequence[torch.Tensor]]) -> None:
    """No two calls may return the same memory: the second would overwrite what the first returned.

    Raises:
        NotWhatItReturns: two do.
    """
    owners: dict[int, int] = {}
    for call, tensors in enumerate(results):
        for number, tensor in enumerate(tensors):
            if not tensor.numel():
                continue
            owner = owners.setdefault(tensor.data_ptr(), call)
            if owner != call:
                raise NotWhatItReturns(
                    f"output {number} lies in the same memory as an output of an earlier call; "
                    "each call must return memory of its own"
                )

"""Packing: the weights of one site become views of one buffer in huge pages, and nobody else notices.

``state_dict`` keys, values, tied parameters and memory stay as they were: each parameter keeps its identity and gets
its ``data`` replaced by a view that lies directly behind its sibling's. A kernel at the speed of memory gains from the
placement alone: with 4 KiB pages the processor's prefetchers stop at every page end and address translation misses;
on one Zen 5 core the linears of a decode step read 38 to 40 GB/s out of 2 MiB pages, 33 out of small
ones. Stock arms that share the model share the
placement, so that no comparison is flattered by it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from extractor.errors import KernelgraftError

HUGE_PAGE = 2 << 20  # bytes; smaller groups of weights are not worth moving


class CannotPack(KernelgraftError):
    """Weights that cannot share one buffer."""

    template = "these weights cannot be packed: {problem}"


@dataclass(frozen=True)
class Packing:
    """Parameters that are views of one buffer, in order."""

    parameters: tuple[torch.nn.Parameter, ...]
    buffer: torch.Tensor

    @property
    def intact(self) -> bool:
        """True while every parameter still lies where packing put it (``model.to`` moves them away)."""
        address = self.buffer.data_ptr()
        for parameter in self.parameters:
            if parameter.data_ptr() != address or not parameter.is_contiguous():
                return False
            address += parameter.numel() * parameter.element_size()
        return True

    def undo(self) -> None:
        """Give every parameter storage of its own again, values unchanged. Moved parameters are left alone."""
        if self.intact:
            for parameter in self.parameters:
                parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)


def pack(parameters: Sequence[torch.nn.Parameter], others: Iterable[torch.Tensor] = ()) -> Packing:
    """Make ``parameters`` contiguous views of one new buffer, in order; their old storage is freed one by one.

    ``others`` are the model's remaining tensors, looked through for a second owner of the same storage.

    Raises:
        CannotPack: they differ in dtype, device or columns, one repeats, is not contiguous, or shares its storage
            with something else (a tied weight that is another Parameter object would silently come apart).
    """
    first = parameters[0]
    if len({id(parameter) for parameter in parameters}) != len(parameters):
        raise CannotPack(problem="one of them occurs twice")
    for parameter in parameters:
        if (parameter.dtype, parameter.device, parameter.shape[1:]) != (
            first.dtype,
            first.device,
            first.shape[1:],
        ):
            raise CannotPack(problem="they differ in dtype, device or number of columns")
        if not parameter.is_contiguous():
            raise CannotPack(problem="one is not contiguous")
        if parameter.untyped_storage().nbytes() != parameter.numel() * parameter.element_size():
            raise CannotPack(problem="one already shares a larger storage")
    members = {id(parameter) for parameter in parameters}
    storages = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    if any(o.untyped_storage().data_ptr() in storages for o in others if id(o) not in members):
        raise CannotPack(problem="one is tied to another tensor of the model")
    total = sum(parameter.numel() for parameter in parameters)
    buffer = _allocate(total * first.element_size(), first.device).view(first.dtype)
    begin = 0
    for parameter in parameters:
        view = buffer[begin : begin + parameter.numel()].view(parameter.shape)
        view.copy_(parameter.detach())
        parameter.data = view
        begin += parameter.numel()
    return Packing(tuple(parameters), buffer)


def _allocate(size: int, device: torch.device) -> torch.Tensor:
    """``size`` uninitialised bytes; on the CPU aligned to huge pages, which the system is asked to use."""
    if device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8, device=device)
    # Private: shared anonymous memory is a file to the kernel and gets no huge pages.
    region = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel built without huge pages: ordinary ones serve as well, only slower
        region.madvise(mmap.MADV_HUGEPAGE)
    begin = -torch.frombuffer(region, dtype=torch.uint8, count=1).data_ptr() % HUGE_PAGE
    return torch.frombuffer(region, dtype=torch.uint8, offset=begin, count=size)


class Packer:
    """The packings of one model: each group of siblings is packed once, however many captures ask for it."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._packings: dict[tuple[int, ...], Packing] = {}

    def pack(self, parameters: Sequence[torch.nn.Parameter]) -> Packing:
        """Pack a group, or return its packing if it still holds. Raises CannotPack."""
        key = tuple(id(parameter) for parameter in parameters)
        present = self._packings.get(key)
        if present is None or not present.intact:
            self._packings[key] = pack(parameters, [*self._model.parameters(), *self._model.buffers()])
        return self._packings[key]

    def pack_if_possible(self, parameters: Sequence[torch.nn.Parameter]) -> bool:
        """Pack a group and say whether it is packed now: a tied or shared weight stays where it is."""
        try:
            self.pack(parameters)
        except CannotPack:
            return False
        return True

    def undo(self) -> None:
        """Undo every packing; values, keys and sharing between parameters are as before."""
        for packing in self._packings.values():
            packing.undo()
        self._packings.clear()

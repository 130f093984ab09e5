"""Packing: sibling weights become views of one buffer, and nobody else notices.

``state_dict`` keys, values, tied parameters and memory stay as they were: each parameter keeps its identity and gets
its ``data`` replaced by a view that lies directly behind its sibling's. A kernel that asks for it may then read the
siblings as one matrix. Nothing is packed unless a graft's candidate asks (``weights: packed`` in its notes): kernels
that lay weights out themselves (``kg_pack``) gain nothing from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from extractor.errors import KernelgraftError


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
    buffer = torch.empty(total, dtype=first.dtype, device=first.device)
    begin = 0
    for parameter in parameters:
        view = buffer[begin : begin + parameter.numel()].view(parameter.shape)
        view.copy_(parameter.detach())
        parameter.data = view
        begin += parameter.numel()
    return Packing(tuple(parameters), buffer)


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

    def undo(self) -> None:
        """Undo every packing; values, keys and sharing between parameters are as before."""
        for packing in self._packings.values():
            packing.undo()
        self._packings.clear()

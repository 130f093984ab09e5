"""Call an accepted kernel in this process on torch tensors, in about 3 us.

A *kernel* is a loaded library. *Packing* its weights happens once per set of weights. *Binding* fixes weights,
shapes, strides and dtypes, so that a call only checks them, refreshes the input pointers and allocates outputs.

Only code that the judge has accepted is loaded here: it runs with all rights of this process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch

from extractor.errors import KernelgraftError
from extractor.laws import torch_dtype
from extractor.schema import TensorSpec
from optimizer.languages.abi import FORWARD, OK, PACK, PACK_ALIGNMENT, PACKED_BYTES, UNSUPPORTED, TensorArray

Described: TypeAlias = "TensorSpec | torch.Tensor"


class KernelUnloadable(KernelgraftError):
    """A shared library is missing, damaged, or has no ``kg_forward``."""

    template = "cannot load the kernel {path}: {why}; optimize again to rebuild it"


class KernelDeclined(KernelgraftError):
    """The kernel answered KG_UNSUPPORTED: it does not serve these shapes or strides."""

    template = "the kernel {path} declines inputs of shapes {shapes}"


class WrongArgument(KernelgraftError):
    """A call does not match what the kernel was bound for."""

    template = "input {index} of a bound kernel is {got}, but it was bound for {expected}"


@dataclass(frozen=True)
class _Layout:
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, described: Described) -> _Layout:
        if isinstance(described, torch.Tensor):
            return cls(described.shape, described.stride(), described.dtype)
        return cls(torch.Size(described.shape), tuple(described.stride), torch_dtype(described.dtype))

    @property
    def abi(self) -> tuple[Sequence[int], Sequence[int], str]:
        return tuple(self.shape), self.stride, str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        return f"{self.dtype} {tuple(self.shape)} with strides {self.stride}"


def _tensor_array(tensors: Sequence[torch.Tensor]) -> TensorArray:
    array = TensorArray([_Layout.of(tensor).abi for tensor in tensors])
    for index, tensor in enumerate(tensors):
        array.set_data(index, tensor.data_ptr())
    return array


class PackedWeights:
    """A kernel's packed form of one set of weights, with the weights it came from kept alive.

    ``nbytes`` is the extra memory it takes; 0 for kernels that read the weights as they are.
    """

    def __init__(self, library: ctypes.CDLL, weights: Sequence[torch.Tensor]) -> None:
        self.weights = tuple(weights)
        self.array = _tensor_array(self.weights)
        self._pack = getattr(library, PACK, None)
        self.nbytes = 0
        self._buffer: torch.Tensor | None = None
        if self._pack is not None:
            measure = getattr(library, PACKED_BYTES)
            measure.restype = ctypes.c_size_t
            measure.argtypes = (ctypes.c_void_p,)
            self._pack.restype = None
            self._pack.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
            self.nbytes = int(measure(self.array.address))
            self._buffer = torch.empty(self.nbytes + PACK_ALIGNMENT, dtype=torch.uint8)
        self.repack()

    @property
    def address(self) -> int | None:
        """Where the packed bytes start, page aligned; None if there are none."""
        if self._buffer is None:
            return None
        return -(-self._buffer.data_ptr() // PACK_ALIGNMENT) * PACK_ALIGNMENT

    def repack(self) -> None:
        """Pack again from the weights' present values, in place: needed after a weight was changed in place."""
        for index, weight in enumerate(self.weights):
            self.array.set_data(index, weight.data_ptr())
        if self._pack is not None:
            self._pack(self.array.address, self.address)


class CppKernel:
    """A loaded kernel library."""

    def __init__(self, path: Path, library: ctypes.CDLL) -> None:
        self.path = path
        self.library = library

    @classmethod
    def load(cls, path: Path) -> CppKernel:
        """Load a built library. torch is imported first, so that both share one OpenMP thread pool.

        Raises:
            KernelUnloadable: it is missing, damaged, or exports no ``kg_forward``.
        """
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise KernelUnloadable(path=path, why=error) from error
        if not hasattr(library, FORWARD):
            raise KernelUnloadable(path=path, why=f"it exports no {FORWARD}")
        if hasattr(library, PACK) != hasattr(library, PACKED_BYTES):
            raise KernelUnloadable(path=path, why=f"{PACK} and {PACKED_BYTES} come only together")
        return cls(Path(path), library)

    @property
    def repacks(self) -> bool:
        """True if the kernel keeps a packed copy of its weights instead of reading them where they lie."""
        return hasattr(self.library, PACK)

    def pack(self, weights: Sequence[torch.Tensor]) -> PackedWeights:
        """Run the kernel's packing step on one set of weights; share the result between bindings."""
        return PackedWeights(self.library, weights)

    def bind(
        self,
        weights: Sequence[torch.Tensor],
        inputs: Sequence[Described],
        outputs: Sequence[Described],
        *,
        packed: PackedWeights | None = None,
    ) -> BoundKernel:
        """Fix everything but the input values. Tensors and specs of ``inputs`` and ``outputs`` stand for layouts.

        Pass ``packed`` to bind several workloads to one packed copy of the weights.
        """
        return BoundKernel(self, packed or self.pack(weights), inputs, outputs)


class BoundKernel:
    """A kernel fixed to weights and layouts: ``bound(*inputs)`` returns a tuple of fresh outputs.

    ``calls`` counts successful calls. Not re-entrant: one thread at a time.

    Raises (on call):
        WrongArgument: number, shape, stride or dtype differs from the binding.
        KernelDeclined: the kernel answered KG_UNSUPPORTED.
    """

    __slots__ = (
        "_arguments",
        "_expected",
        "_forward",
        "_outputs",
        "_results",
        "_words",
        "calls",
        "kernel",
        "packed",
    )

    def __init__(
        self,
        kernel: CppKernel,
        packed: PackedWeights,
        inputs: Sequence[Described],
        outputs: Sequence[Described],
    ) -> None:
        self.kernel = kernel
        self.packed = packed
        self.calls = 0
        expected = [_Layout.of(item) for item in inputs]
        produced = [_Layout.of(item) for item in outputs]
        arrays = TensorArray([item.abi for item in expected]), TensorArray([item.abi for item in produced])
        self._expected = tuple(
            (item.shape, item.stride, item.dtype, 4 * i) for i, item in enumerate(expected)
        )
        self._outputs = tuple((item.shape, item.stride, item.dtype, 4 * i) for i, item in enumerate(produced))
        self._words, self._results = arrays[0].words, arrays[1].words
        # Pointer objects made once: ctypes would otherwise convert four integers on every call.
        self._arguments = (
            ctypes.byref(arrays[0].array),
            ctypes.byref(packed.array.array),
            ctypes.byref(arrays[1].array),
            ctypes.c_void_p(packed.address),
            arrays,  # keeps the size and stride arrays alive; the call passes only the first four
        )
        self._forward = kernel.library[FORWARD]

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the kernel."""
        if len(inputs) != len(self._expected):
            raise WrongArgument(index=len(inputs), got="the last", expected=f"{len(self._expected)} inputs")
        words = self._words
        for tensor, (shape, stride, dtype, word) in zip(inputs, self._expected, strict=False):
            if tensor.shape != shape or tensor.stride() != stride or tensor.dtype is not dtype:
                self._complain(inputs)
            words[word] = tensor.data_ptr()
        words = self._results
        outputs = []
        for shape, stride, dtype, word in self._outputs:
            tensor = torch.empty_strided(shape, stride, dtype=dtype)
            words[word] = tensor.data_ptr()
            outputs.append(tensor)
        first, second, third, fourth, _ = self._arguments
        status = self._forward(first, second, third, fourth)
        if status != OK:
            self._decline(status, inputs)
        self.calls += 1
        return tuple(outputs)

    def _complain(self, inputs: Sequence[torch.Tensor]) -> None:
        for index, (tensor, (shape, stride, dtype, _)) in enumerate(zip(inputs, self._expected, strict=True)):
            got, expected = _Layout.of(tensor), _Layout(shape, stride, dtype)
            if got != expected and not _same_elements(got, expected):
                raise WrongArgument(index=index, got=got, expected=expected)

    def _decline(self, status: int, inputs: Sequence[torch.Tensor]) -> None:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in inputs)
        if status == UNSUPPORTED:
            raise KernelDeclined(path=self.kernel.path, shapes=shapes)
        raise KernelUnloadable(path=self.kernel.path, why=f"kg_forward returned {status}, which is no status")


def _same_elements(got: _Layout, expected: _Layout) -> bool:
    """True if the layouts differ only in strides of axes of length 1, which address nothing."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    pairs = zip(got.shape, got.stride, expected.stride, strict=True)
    return all(a == b for size, a, b in pairs if size != 1)

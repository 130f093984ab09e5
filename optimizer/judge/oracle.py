"""What the right answer is: the reference in double precision, and eager's own answer at the task's dtype.

Both are computed in the judge's process only. Running ``Model`` in fp64 needs more than fp64 weights: its source
casts (``.to(torch.float32)``, ``.float()``, ``dtype=torch.float32``), and each such cast is neutralised; and it makes
tensors of the default dtype, which is fp64 meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from extractor.program import flat_outputs

_LOW = (torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2)
_CASTS = {"float", "half", "bfloat16", "double"}
_PRODUCTS = {
    "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "__matmul__", "__rmatmul__", "bilinear",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "scaled_dot_product_attention",
}  # fmt: skip
_GROUPED = {"_grouped_mm", "grouped_mm"}

# A weight larger than this stays in its dtype and is widened in row chunks: lm_head in fp64 would take 1.2 GB.
BIG_WEIGHT = 1 << 24
_CHUNK_ELEMENTS = 1 << 20  # 4 MiB of fp32: stays in cache between widening and product


class DoublePrecision(TorchFunctionMode):
    """Runs everything inside in fp64: casts to lower float types become casts to fp64.

    Products with a weight above ``BIG_WEIGHT`` elements are computed in row chunks; for 16-bit weights the chunks
    are fp32, whose rounding is ten thousand times finer than the outputs it is compared with.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = dict(kwargs or {})
        if name in _CASTS and args and isinstance(args[0], torch.Tensor):
            return args[0].to(torch.float64)
        if name in ("to", "type"):
            args = tuple(_widened_dtype(argument) for argument in args)
        if "dtype" in kwargs:
            kwargs["dtype"] = _widened_dtype(kwargs["dtype"])
        if name == "linear" and args[1].numel() > BIG_WEIGHT and args[1].dtype in _LOW:
            return _chunked_linear(args[0], args[1], args[2] if len(args) > 2 else kwargs.get("bias"))
        if name in _GROUPED:
            return _grouped(args[0].double(), args[1], kwargs.get("offs", args[2] if len(args) > 2 else None))
        if name in _PRODUCTS:
            args = tuple(_widened(argument) for argument in args)
            kwargs = {key: _widened(value) for key, value in kwargs.items()}
        return func(*args, **kwargs)


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    """A model's result as a flat tuple of tensors; numbers become 0-d ones on the CPU. Raises TypeError."""
    return tuple(flat_outputs(result))


def widen(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights for the fp64 model; big ones are kept as they are (see :class:`DoublePrecision`)."""
    return {
        name: weight.double() if weight.dtype in _LOW and weight.numel() <= BIG_WEIGHT else weight
        for name, weight in weights.items()
    }


def exact_outputs(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The double-precision answer of a model whose weights were widened, all on the inputs' device.

    Raises what the model raises where an operation of it has no double-precision form.
    """
    wide = [tensor.double() if tensor.dtype in _LOW else tensor for tensor in inputs]
    with torch.no_grad(), _default_double(), DoublePrecision():
        outputs = as_tuple(model(*wide))
    return tuple(tensor.detach() for tensor in beside(outputs, inputs))


def eager_outputs(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Eager's answer at the task's dtype, all of it on the inputs' device."""
    with torch.no_grad():
        return tuple(tensor.detach() for tensor in beside(as_tuple(model(*inputs)), inputs))


def beside(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Numbers among the outputs, which are on the CPU, brought to the inputs' device."""
    device = inputs[0].device if inputs else torch.device("cpu")
    return tuple(tensor if tensor.device == device else tensor.to(device) for tensor in outputs)


@contextlib.contextmanager
def _default_double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _widened_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _LOW else value


def _widened(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.dtype in _LOW else value


def _chunked_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    middle = torch.float32 if weight.dtype in (torch.bfloat16, torch.float16) else torch.float64
    result = torch.empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float64, device=x.device)
    x = x.to(middle)
    step = max(1, _CHUNK_ELEMENTS // weight.shape[1])
    buffer = torch.empty((step, weight.shape[1]), dtype=middle, device=x.device)
    for start in range(0, weight.shape[0], step):
        part = weight[start : start + step]
        rows = buffer[: part.shape[0]].copy_(part)
        result[..., start : start + step] = x @ rows.transpose(0, 1)
    return result if bias is None else result + bias


def _grouped(x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
    """``grouped_mm`` of [tokens, k] with [groups, k, n]; ``offsets`` are the groups' end rows."""
    if x.dim() == 3 and weight.dim() == 3:
        return torch.bmm(x, weight.double())
    if offsets is None or x.dim() != 2 or weight.dim() != 3:
        raise NotImplementedError("this form of grouped_mm has no fp64 oracle")
    parts, start = [], 0
    for group, end in enumerate(offsets.tolist()):
        parts.append(x[start:end] @ weight[group].double())
        start = end
    parts.append(x.new_zeros((x.shape[0] - start, weight.shape[2])))
    return torch.cat(parts)

"""Triton's interpreter, fit to judge by: exact in bfloat16 and fp8, and strict about memory.

The interpreter keeps bfloat16 as 16-bit integers and computes on the bit patterns; here such operands are widened to
fp32 and the result is rounded to nearest even, as the hardware does. Products of fp32 matrices lose the digits that
TF32 loses, unless the kernel asks for ``input_precision="ieee"``: so they do on the GPUs the kernel is for. What a
masked load leaves undefined is something else each time. The language is patched for interpretation once and for all
instead of once a launch.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language import core
from triton.runtime import interpreter as ti

from optimizer.judge.python import emulation, libdevice, tuning
from optimizer.judge.python.bounds import Launch, current
from optimizer.judge.python.undefined import undefined

_FLOAT8 = {
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}
_COMPARISONS = (
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
    np.equal,
    np.not_equal,
)
_RELAXED = ti._ir.MEM_SEMANTIC.RELAXED
_TF32 = ti._ir.INPUT_PRECISION.TF32


def install() -> None:
    """Repair the interpreter of this process, for good. Only where ``TRITON_INTERPRET`` was set before the import."""
    builder: Any = ti.InterpreterBuilder
    _repair_arithmetic(builder)
    _repair_casts(builder)
    _repair_reductions()
    _check_bounds(builder)
    _launch_in_place()
    _know_constants_by_name()
    tuning.install()
    _patch_language_once()
    libdevice.install()
    emulation.install()


def widen(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bit patterns as fp32, exactly.

    >>> float(widen(np.array([0x3FC0], dtype=np.uint16))[0])
    1.5
    """
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: np.ndarray) -> np.ndarray:
    """fp32 as bfloat16 bit patterns, rounded to nearest even.

    >>> [hex(int(bits)) for bits in narrow(np.array([1.00390625, np.nan], dtype=np.float32))]
    ['0x3f80', '0x7fc0']
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).reshape(np.shape(values))


def to_tf32(values: np.ndarray) -> np.ndarray:
    """fp32 with the mantissa rounded to the 10 bits that tensor cores read.

    >>> float(to_tf32(np.array([1 + 2**-10 + 2**-12], dtype=np.float32))[0]) == 1 + 2**-10
    True
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, values).reshape(np.shape(values))


def _is_bf16(handle: Any) -> bool:
    return bool(handle.dtype.scalar == tl.bfloat16) and handle.data.dtype == np.uint16


def _wide(handle: Any) -> np.ndarray:
    return widen(handle.data) if _is_bf16(handle) else handle.data


def _handle(data: np.ndarray, dtype: Any) -> Any:
    return ti.TensorHandle(data, dtype)


def _repair_arithmetic(builder: Any) -> None:
    binary, unary, ternary, dot = (
        builder.binary_op,
        builder.unary_op,
        builder.ternary_op,
        builder.create_dot,
    )

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Callable[..., np.ndarray]) -> Any:
        if not (_is_bf16(lhs) or _is_bf16(rhs)):
            return binary(self, lhs, rhs, op)
        result = op(_wide(lhs), _wide(rhs))
        return _handle(result, tl.int1) if op in _COMPARISONS else _handle(narrow(result), tl.bfloat16)

    def unary_op(self: Any, arg: Any, op: Callable[..., np.ndarray]) -> Any:
        return _handle(narrow(op(_wide(arg))), tl.bfloat16) if _is_bf16(arg) else unary(self, arg, op)

    def ternary_op(self: Any, lhs: Any, rhs: Any, other: Any, op: Callable[..., np.ndarray]) -> Any:
        if op is np.where or not _is_bf16(other):  # a selection moves bits
            return ternary(self, lhs, rhs, other, op)
        return _handle(narrow(op(_wide(lhs), _wide(rhs), _wide(other))), tl.bfloat16)

    def create_fma(_self: Any, x: Any, y: Any, z: Any) -> Any:
        result = _wide(x) * _wide(y) + _wide(z)
        return _handle(narrow(result), tl.bfloat16) if _is_bf16(z) else _handle(result, z.dtype.scalar)

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        if precision == _TF32 and a.data.dtype == b.data.dtype == np.float32:
            a, b = (_handle(to_tf32(side.data), tl.float32) for side in (a, b))
        if not (_is_bf16(a) or _is_bf16(b) or _is_bf16(d)):
            return dot(self, a, b, d, precision, imprecise)
        result = np.matmul(_wide(a), _wide(b), dtype=np.float32) + _wide(d)
        return _handle(narrow(result), tl.bfloat16) if _is_bf16(d) else _handle(result, d.dtype.scalar)

    builder.binary_op, builder.unary_op, builder.ternary_op = binary_op, unary_op, ternary_op
    builder.create_fma, builder.create_dot = create_fma, create_dot
    builder.get_bf16 = lambda self, value: _handle(narrow(np.array([value], dtype=np.float32)), tl.bfloat16)
    for name in ("create_erf", "create_rsqrt"):
        _widen_argument(builder, name)


def _widen_argument(builder: Any, name: str) -> None:
    stock = getattr(builder, name)

    def create(self: Any, arg: Any) -> Any:
        if not _is_bf16(arg):
            return stock(self, arg)
        return _handle(narrow(stock(self, _handle(widen(arg.data), tl.float32)).data), tl.bfloat16)

    setattr(builder, name, create)


def _repair_casts(builder: Any) -> None:
    cast, to_fp = builder.cast_impl, builder.create_fp_to_fp

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if tl.bfloat16 not in (source, target) or source == target:
            return cast(self, src, dst_type)
        if target == tl.bfloat16:
            return _handle(narrow(src.data.astype(np.float32)), target)
        return (
            cast(self, _handle(_wide(src), tl.float32), dst_type)
            if target != tl.float32
            else _handle(_wide(src), target)
        )

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source in _FLOAT8:
            small = torch.from_numpy(np.ascontiguousarray(src.data)).view(_FLOAT8[source])
            return self.cast_impl(_handle(small.float().numpy(), tl.float32), dst_type)
        if target in _FLOAT8:
            wide = torch.from_numpy(np.ascontiguousarray(_wide(src).astype(np.float32)))
            return _handle(wide.to(_FLOAT8[target]).view(torch.uint8).numpy(), target)
        if tl.bfloat16 in (source, target):
            return cast_impl(self, src, dst_type)
        return to_fp(self, src, dst_type, rounding)

    builder.cast_impl, builder.create_fp_to_fp = cast_impl, create_fp_to_fp


def _repair_reductions() -> None:
    for kind in (ti.ReduceOps, ti.ScanOps):
        _repair_reduction(kind)


def _repair_reduction(kind: Any) -> None:
    stock = kind.apply_impl

    def apply_impl(self: Any, inputs: Any) -> Any:
        flags = [_is_bf16(value.handle) for value in inputs]
        if not any(flags):
            return stock(self, inputs)
        wide = tuple(
            self.to_tensor(widen(value.handle.data), tl.float32) if flag else value
            for value, flag in zip(inputs, flags, strict=True)
        )
        result = stock(self, wide)
        results = result if isinstance(result, list | tuple) else (result,)
        for value, flag in zip(results, flags, strict=False):
            if flag:
                value.handle.data = narrow(value.handle.data)
                value.handle.dtype = tl.bfloat16
                value.dtype = tl.bfloat16
                value.type = value.type.with_element_ty(tl.bfloat16) if value.type.is_block() else tl.bfloat16
        return result

    kind.apply_impl = apply_impl


def _check_bounds(builder: Any) -> None:
    load, store = builder.create_masked_load, builder.create_masked_store
    swap, modify = builder.create_atomic_cas, builder.create_atomic_rmw

    # What comes after ``other`` is another in each release of Triton; whether it is volatile comes last in all.
    def create_masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        mask = _as_mask(mask)
        volatile = named["is_volatile"] if "is_volatile" in named else rest[-1]
        current().loads(ptrs, mask.data, self.grid_idx, fresh=bool(volatile))
        if other is None and not mask.data.all():
            other = _handle(undefined(ptrs.data.shape, ptrs.get_element_ty()), ptrs.get_element_ty())
        return load(self, ptrs, mask, other, *rest, **named)

    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        mask = _as_mask(mask)
        current().stores(ptrs, value.data, mask.data, self.grid_idx)
        return store(self, ptrs, value, mask, *rest, **named)

    def create_atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        used = current().updates(ptr, None, self.grid_idx, relaxed=sem == _RELAXED)
        return Seen(swap(self, ptr, cmp, val, sem, scope), used)

    def create_atomic_rmw(self: Any, op: Any, ptr: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
        used = current().updates(ptr, mask.data, self.grid_idx, relaxed=sem == _RELAXED)
        return Seen(modify(self, op, ptr, value, mask, sem, scope), used)

    builder.create_masked_load, builder.create_masked_store = create_masked_load, create_masked_store
    builder.create_atomic_cas, builder.create_atomic_rmw = create_atomic_cas, create_atomic_rmw


class Seen(ti.TensorHandle):
    """What an atomic operation found there. ``used`` is called when a program first looks at it."""

    def __init__(self, found: Any, used: Callable[[], None]) -> None:
        self._found = found.data
        self._used: Callable[[], None] | None = used
        self.dtype = found.dtype
        self.attr = dict(found.attr)

    @property
    def data(self) -> np.ndarray:
        if self._used is not None:
            used, self._used = self._used, None
            used()
        return self._found

    @data.setter
    def data(self, value: np.ndarray) -> None:
        self._found = value


def _as_mask(mask: Any) -> Any:
    """Block pointers hand over a bare array where a handle is read."""
    return mask if isinstance(mask, ti.TensorHandle) else _handle(mask, tl.int1)


def _launch_in_place() -> None:
    """Arguments are in this process's memory already: no copies, and their storages are what may be addressed."""
    executor: Any = ti.GridExecutor

    def keep(_self: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        return list(args), kwargs

    run = executor.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with Launch(self.fn.__name__, list(_tensors([*args, *kwargs.values()]))):
            return run(self, *args, **kwargs)

    executor._init_args_hst = keep
    executor._restore_args_dev = lambda self, *_: None
    executor.__call__ = call


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        value = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _know_constants_by_name() -> None:
    """A parameter annotated with a string, ``"tl.constexpr"``, is a constant for the compiler too."""
    executor: Any = ti.GridExecutor
    construct = executor.__init__

    def __init__(self: Any, fn: Any, arg_names: Sequence[str], *rest: Any) -> None:  # noqa: N807
        construct(self, fn, arg_names, *rest)
        self.constexprs = [name for name in arg_names if "constexpr" in str(fn.__annotations__.get(name, ""))]

    executor.__init__ = __init__


def _patch_language_once() -> None:
    visible = types.SimpleNamespace(__globals__={"tl": tl, "core": core})
    patch: Any = ti._patch_lang
    patch(visible)
    nothing = types.SimpleNamespace(restore=lambda: None)
    module: Any = ti
    module._patch_lang = lambda fn: nothing
    assert triton.knobs.runtime.interpret

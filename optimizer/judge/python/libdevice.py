"""CUDA's device library in Triton's interpreter: its usual functions by numpy and torch, in the arguments' precision.

Directed rounding is not imitated; results are those of rounding to nearest.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton.language import core
from triton.language.extra import libdevice as general
from triton.language.extra.cuda import libdevice as cuda
from triton.runtime import interpreter as ti

Function = Callable[..., np.ndarray]


def _torch(function: Callable[..., torch.Tensor]) -> Function:
    return lambda *arguments: function(*(torch.from_numpy(np.array(each)) for each in arguments)).numpy()


def _round_away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)


def _bits(kind: str) -> Function:
    return lambda x: np.ascontiguousarray(x).view(kind)


_ARITHMETIC: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fma": lambda x, y, z: x * y + z,
}
_SAME_IN_NUMPY = (
    *("abs", "fabs", "copysign", "fmod", "hypot", "ldexp", "nextafter"),
    *("ceil", "floor", "rint", "trunc"),
    *("cos", "cosh", "sin", "sinh", "tan", "tanh"),
    *("cbrt", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2"),
)
_FUNCTIONS: dict[str, Function] = {
    **_ARITHMETIC,
    **{f"{kind}{name}": function for kind in "fd" for name, function in _ARITHMETIC.items()},
    **{name: getattr(np, name) for name in _SAME_IN_NUMPY},
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cospi": lambda x: np.cos(np.pi * x),
    "cyl_bessel_i0": _torch(torch.special.i0),
    "cyl_bessel_i1": _torch(torch.special.i1),
    "erf": _torch(torch.erf),
    "erfc": _torch(torch.erfc),
    "erfcx": _torch(torch.special.erfcx),
    "erfinv": _torch(torch.erfinv),
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "fdivide": np.divide,
    "finite": np.isfinite,
    "float_as_int": _bits("int32"),
    "float_as_uint": _bits("uint32"),
    "double_as_longlong": _bits("int64"),
    "int_as_float": _bits("float32"),
    "uint_as_float": _bits("float32"),
    "longlong_as_double": _bits("float64"),
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    "isfinited": np.isfinite,
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "isnan": np.isnan,
    "isnand": np.isnan,
    "j0": _torch(torch.special.bessel_j0),
    "j1": _torch(torch.special.bessel_j1),
    "lgamma": _torch(torch.lgamma),
    "llabs": np.abs,
    "llrint": np.rint,
    "llround": _round_away,
    "logb": lambda x: (np.frexp(x)[1] - 1).astype(x.dtype),
    "nearbyint": np.rint,
    "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "normcdf": _torch(torch.special.ndtr),
    "normcdfinv": _torch(torch.special.ndtri),
    "pow": np.power,
    "powi": lambda x, n: np.power(x, n.astype(x.dtype)),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "round": _round_away,
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1),
    "scalbn": np.ldexp,
    "signbit": np.signbit,
    "signbitd": np.signbit,
    "sinpi": lambda x: np.sin(np.pi * x),
    "tgamma": lambda x: _gamma(x),
    "y0": _torch(torch.special.bessel_y0),
    "y1": _torch(torch.special.bessel_y1),
    **{name: np.bitwise_count for name in ("popc", "popcll") if hasattr(np, "bitwise_count")},
}
_ROUNDINGS = ("_rn", "_rz", "_rd", "_ru")
_ROUND_TO_INTEGER: dict[str, Function] = {"_rn": np.rint, "_rz": np.trunc, "_rd": np.floor, "_ru": np.ceil}


class NotInterpreted(NotImplementedError):
    """A function of the device library that has no counterpart here."""


def install() -> None:
    """Make the library's functions callable in interpreted kernels of this process, for good."""
    for name, member in inspect.getmembers(cuda):
        if core.is_builtin(member) and getattr(member, "__module__", "") == cuda.__name__:
            for module in (cuda, general):
                setattr(module, name, _callable(member))
    builder: Any = ti.InterpreterBuilder
    builder.create_extern_elementwise = _call


def find(symbol: str) -> Function:
    """The function of a symbol such as ``__nv_tanhf``. Raises NotInterpreted.

    >>> find("__nv_fast_expf") is np.exp
    True
    """
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    for known in (name, name.removesuffix("f"), name[:-3] if name.endswith(_ROUNDINGS) else name):
        for shape in (known, known.removesuffix("f")):
            if shape in _FUNCTIONS:
                return _FUNCTIONS[shape]
    source, to, target = name.partition("2")
    if to and target.endswith(_ROUNDINGS):
        whole = source in ("float", "double") and not target.startswith(("float", "double"))
        return _ROUND_TO_INTEGER[target[-3:]] if whole else np.asarray
    raise NotInterpreted(
        f"Triton's interpreter does not know libdevice's {symbol}; judge this kernel on a GPU"
    )


def _gamma(x: np.ndarray) -> np.ndarray:
    gamma = np.vectorize(lambda value: math.gamma(value) if value > 0 or value % 1 else float("nan"))
    return np.asarray(gamma(x.astype(np.float64)), dtype=x.dtype)


def _callable(member: Any) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        named.pop("_semantic", None)
        return member(*arguments, **named, _semantic=ti.interpreter_semantic)

    call.__name__ = member.__name__
    call.__triton_builtin__ = True  # type: ignore[attr-defined]  # the interpreter's own mark
    return call


def _call(
    _builder: Any, _library: str, _path: str, symbol: str, arguments: list[Any], kind: Any, _pure: bool
) -> Any:
    scalar = getattr(kind, "scalar", kind)
    result = np.asarray(find(symbol)(*(argument.data for argument in arguments)))
    return ti.TensorHandle(result.astype(ti._get_np_dtype(scalar)), scalar)

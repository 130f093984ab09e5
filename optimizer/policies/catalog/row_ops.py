"""What the row-wise generator knows of single ops: element formulas, shape maps and reductions.

Formulas compute in float32 and are rounded to the op's dtype right after, exactly as eager does.
"""

from __future__ import annotations

from typing import Any

from extractor.schema import OpRecord
from optimizer.policies.catalog.graph import NotCovered, dtype_of, operand, reference

FLOATS = ("float32", "bfloat16", "float16")

IDENTITY = {"to", "float", "bfloat16", "half", "type_as", "contiguous", "clone", "dropout", "detach"}
REDUCTIONS = ("mean", "sum")

_UNARY = {
    "neg": "-{0}",
    "abs": "kg_fabs({0})",
    "rsqrt": "1.0f / kg_sqrt({0})",
    "sqrt": "kg_sqrt({0})",
    "reciprocal": "1.0f / {0}",
    "square": "{0} * {0}",
    "exp": "kg_exp({0})",
    "sigmoid": "1.0f / (1.0f + kg_exp(-{0}))",
    "silu": "{0} / (1.0f + kg_exp(-{0}))",
    "tanh": "kg_tanh({0})",
    "relu": "kg_relu({0})",
    "log": "kg_log({0})",
}
_BINARY = {
    "add": "{0} + {1}",
    "iadd": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "imul": "{0} * {1}",
    "truediv": "{0} / {1}",
    "div": "{0} / {1}",
}
_POWERS = {
    2.0: "{0} * {0}",
    3.0: "{0} * {0} * {0}",
    0.5: "kg_sqrt({0})",
    -0.5: "1.0f / kg_sqrt({0})",
    -1.0: "1.0f / {0}",
}
_GELU_TANH = "0.5f * {0} * (1.0f + kg_tanh(0.7978845608028654f * ({0} + 0.044715f * {0} * {0} * {0})))"
_GELU = "{0} * 0.5f * (1.0f + kg_erf({0} * 0.7071067811865476f))"


def is_identity(op: OpRecord) -> bool:
    """Casts and copies: the value passes, only the dtype may change."""
    if op.op == "dropout":
        return operand(op, 2, "training", True) is False or operand(op, 1, "p", 0.5) == 0.0
    return op.op in IDENTITY


def formula(op: OpRecord) -> tuple[str, list[Any]] | None:
    """``(C formula with {0}, {1}; its arguments)`` of an element op; ``None`` if it is none.

    Arguments are references or numbers. Raises NotCovered for a known op with an unknown option.
    """
    name = op.op
    if name in _UNARY:
        if name == "silu" and operand(op, 1, "inplace", False):
            raise NotCovered("in-place silu")
        return _UNARY[name], [operand(op, 0, "input")]
    if name == "pow":
        exponent = operand(op, 1, "exponent")
        if not isinstance(exponent, int | float) or float(exponent) not in _POWERS:
            raise NotCovered(f"pow with exponent {exponent!r}")
        return _POWERS[float(exponent)], [operand(op, 0, "input")]
    if name == "gelu":
        approximate = operand(op, 1, "approximate", "none")
        if approximate not in ("none", "tanh"):
            raise NotCovered(f"gelu approximate={approximate!r}")
        return (_GELU_TANH if approximate == "tanh" else _GELU), [operand(op, 0, "input")]
    if name == "masked_fill":
        return "kg_fill({0}, {1}, {2})", [
            operand(op, 0, "input"),
            operand(op, 1, "mask"),
            operand(op, 2, "value"),
        ]
    if name in ("clamp", "clip"):
        low, high = operand(op, 1, "min"), operand(op, 2, "max")
        text = "{0}" if low is None else f"kg_atleast({{0}}, {number(low)})"
        return (text if high is None else f"kg_atmost({text}, {number(high)})"), [operand(op, 0, "input")]
    if name == "softplus":
        if operand(op, 1, "beta", 1) not in (1, 1.0) or operand(op, 2, "threshold", 20) not in (20, 20.0):
            raise NotCovered("softplus with its own beta or threshold")
        return "kg_softplus({0})", [operand(op, 0, "input")]
    if name in _BINARY:
        if op.kwargs or len(op.args) != 2:
            raise NotCovered(f"{name} of {len(op.args)} arguments with {sorted(op.kwargs)}")
        return _BINARY[name], list(op.args)
    return None


def reduction(op: OpRecord, rank: int) -> str | None:
    """``mean`` or ``sum`` over the last axis, kept; ``None`` if the op is no reduction. Raises NotCovered."""
    if op.op not in REDUCTIONS:
        return None
    axis = operand(op, 1, "dim")
    axes = axis if isinstance(axis, list | tuple) else [axis]
    keep = operand(op, 2, "keepdim", False)
    if len(axes) != 1 or axes[0] not in (-1, rank - 1) or keep is not True:
        raise NotCovered(f"{op.op} over {axis!r}, keepdim={keep!r}")
    if dtype_of(op.kwargs.get("dtype")) not in (None, op.dtype):
        raise NotCovered(f"{op.op} with a dtype of its own")
    return op.op


def number(argument: Any) -> str:
    """A Python number as a float32 literal, as torch uses it. Raises NotCovered for anything else."""
    if isinstance(argument, bool) or not isinstance(argument, int | float):
        raise NotCovered(f"{argument!r} is not a number")
    text = repr(float(argument))
    return f"{text}f" if "inf" not in text and "nan" not in text else _not_finite(text)


def _not_finite(text: str) -> str:
    raise NotCovered(f"constant {text}")


def list_argument(argument: Any) -> list[Any]:
    """References inside the first argument of ``cat``/``stack``."""
    if not isinstance(argument, list | tuple) or any(reference(item) is None for item in argument):
        raise NotCovered("cat of something that is no list of values")
    return list(argument)

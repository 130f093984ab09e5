"""Write one graph node as one Python statement that needs nothing but torch."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import fx

from extractor.graph import op_name
from extractor.keys import SHAPE_OPS
from extractor.shapes import size_arguments

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "lt": "<",
    "eq": "==",
    "ne": "!=",
}
_AUGMENTED = {"iadd": "+=", "isub": "-=", "imul": "*=", "itruediv": "/=", "iand": "&=", "ior": "|="}


class Unwritable(Exception):
    """A node that cannot be written with torch alone. Never reaches a user."""


class NodeWriter:
    """Writes nodes given names for values, expressions for sizes and an expression for the device."""

    def __init__(
        self,
        names: dict[fx.Node, str],
        sizes: Callable[[fx.Node, tuple[object, ...], fx.Node | None], list[str]],
        device: str,
    ) -> None:
        self._names = names
        self._sizes = sizes
        self._device = device

    def statement(self, node: fx.Node) -> str:
        """One line (two for an augmented assignment) that computes ``node``.

        Raises:
            Unwritable: the function is not torch's, or takes something that has no literal form.
        """
        name, target = op_name(node), self._names[node]
        builtin_operator = getattr(operator, name, None) is node.target
        if builtin_operator and name == "setitem":
            place, index, value = node.args
            return f"{self.value(place)}[{self._index(index)}] = {self.value(value)}"
        if builtin_operator and name in _AUGMENTED:
            left, right = node.args
            return f"{self.value(left)} {_AUGMENTED[name]} {self.value(right)}\n{target} = {self.value(left)}"
        return f"{target} = {self._right_side(node, name, builtin_operator)}"

    def _right_side(self, node: fx.Node, name: str, builtin_operator: bool) -> str:
        if builtin_operator:
            if name in _INFIX:
                left, right = node.args
                return f"{self.value(left)} {_INFIX[name]} {self.value(right)}"
            if name == "getitem":
                return f"{self.value(node.args[0])}[{self._index(node.args[1])}]"
            if name in ("neg", "invert"):
                return f"{'-' if name == 'neg' else '~'}{self.value(node.args[0])}"
            raise Unwritable(f"operator {name} has no written form")
        if node.op == "call_method":
            return f"{self.value(node.args[0])}.{name}({self._arguments(node, skip=1)})"
        return f"{function_name(node.target)}({self._arguments(node, skip=0)})"

    def _arguments(self, node: fx.Node, skip: int) -> str:
        name = op_name(node)
        if name in SHAPE_OPS:
            return self._shape_arguments(node, skip)
        parts = [self.value(value) for value in node.args[skip:]]
        parts += [f"{key}={self.value(value)}" for key, value in node.kwargs.items()]
        return ", ".join(parts)

    def _shape_arguments(self, node: fx.Node, skip: int) -> str:
        operand = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if op_name(node) in ("new_full", "full", "unflatten"):
            raise Unwritable(f"{op_name(node)} is not supported")
        sizes = self._sizes(node, size_arguments(node), operand)
        grouped = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        parts = [self.value(operand)] if operand is not None and skip == 0 else []
        parts += [grouped if parts or len(sizes) != 1 else sizes[0]]
        if node.op == "call_method":
            parts = [", ".join(sizes)]
        parts += [f"{key}={self.value(value)}" for key, value in node.kwargs.items()]
        return ", ".join(parts)

    def value(self, value: Any) -> str:
        """A literal or a name. Raises Unwritable."""
        match value:
            case fx.Node():
                return self._names[value]
            case float() if value != value or value in (float("inf"), float("-inf")):
                return f'float("{value}")'
            case bool() | None | int() | float() | str():
                return repr(value)
            case tuple():
                return f"({', '.join(map(self.value, value))}{',' if len(value) == 1 else ''})"
            case list():
                return f"[{', '.join(map(self.value, value))}]"
            case torch.dtype() | torch.memory_format() | torch.layout():
                return str(value)
            case torch.device():
                return self._device
            case slice():
                return f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})"
            case _ if value is Ellipsis:
                return "..."
        raise Unwritable(f"{type(value).__name__} has no written form")

    def _index(self, index: Any) -> str:
        parts = index if isinstance(index, tuple) else (index,)
        written = [self._slice(part) if isinstance(part, slice) else self.value(part) for part in parts]
        return ", ".join(written) + ("," if isinstance(index, tuple) and len(parts) == 1 else "")

    def _slice(self, part: slice) -> str:
        start, stop, step = (
            "" if edge is None else self.value(edge) for edge in (part.start, part.stop, part.step)
        )
        return f"{start}:{stop}" + (f":{step}" if step else "")


# Operators registered outside torch whose meaning a few lines of torch state in full.
HELPERS = {
    "grouped_mm_fallback": """\
def grouped_mm_fallback(input, weight, offs):
    # Group i is input[offs[i - 1] : offs[i]]; it is multiplied by weight[i].
    output = torch.zeros(input.size(0), weight.size(2), device=input.device, dtype=input.dtype)
    start = 0
    for index, end in enumerate(offs.tolist()):
        if start != end:
            torch.mm(input[start:end], weight[index], out=output[start:end])
        start = end
    return output
""",
}


def function_name(target: object) -> str:
    """How to call ``target``: ``F.silu``, ``torch.rsqrt``. Raises Unwritable for anything that is not torch's."""
    name = str(getattr(target, "__name__", "")).partition(".")[0]
    if name in HELPERS and isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return name
    for prefix, module in (("F", functional), ("torch", torch), ("torch._C._nn", torch._C._nn)):
        if name and getattr(module, name, None) is target:
            return f"{prefix}.{name}"
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket) and str(target).startswith(
        "aten."
    ):
        return f"torch.ops.{target}"
    raise Unwritable(f"function {getattr(target, '__module__', '')}.{name or target} is not part of torch")

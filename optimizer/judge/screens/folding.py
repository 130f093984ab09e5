"""String constants of a Python file: what its CUDA sources say before anything runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from optimizer.judge.screens.origins import Origins
from optimizer.judge.screens.refusal import MAX_SOURCE_BYTES

_UNKNOWN = (
    "0"  # what a value known at run time only is read as: a number, as template parameters and sizes are
)
_DEPTH = 64
_CHARACTERS = 4 * MAX_SOURCE_BYTES
_STEPS = 20_000  # expressions looked at in one file: names of names of names grow without end


class Source(NamedTuple):
    """Source text handed to an extension builder, and the line of the Python file it begins on."""

    text: str
    line: int


@dataclass(frozen=True)
class Unfolded:
    """A source argument that is not made of string constants."""

    line: int


class Folder:
    """Evaluates string expressions: names, ``+``, ``*``, ``%``, join, replace, format, f-strings, dedent, strip."""

    def __init__(self, tree: ast.Module) -> None:
        self._steps = 0
        self._characters = 0
        self._values: dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", None)
                    if name is not None:
                        self._values[name] = node.value
            elif (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and node.value is not None
            ):
                self._values[node.target.id] = node.value

    def strings(self, node: ast.expr, depth: int = 0) -> list[Source] | None:
        """The strings of a string or a list of strings; None if they are not constants of the file."""
        if not self._goes_on(depth):
            return None
        if isinstance(node, ast.List | ast.Tuple):
            found = [self.strings(item, depth + 1) for item in node.elts]
            return None if any(item is None for item in found) else [s for item in found for s in item or []]
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            value = self._values.get(name)
            if value is not None:
                return self.strings(value, depth + 1)
        text = self._text(node, depth)
        if text is None:
            return None
        self._characters += len(text)
        return [Source(text, node.lineno)] if self._characters <= _CHARACTERS else None

    def _text(self, node: ast.expr, depth: int = 0) -> str | None:
        if not self._goes_on(depth):
            return None
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.Name | ast.Attribute):
            value = self._values.get(node.id if isinstance(node, ast.Name) else node.attr)
            return None if value is None else self._text(value, depth + 1)
        if isinstance(node, ast.JoinedStr):
            parts = [self._text(part, depth + 1) for part in node.values]
            return "".join(_UNKNOWN if part is None else part for part in parts)
        if isinstance(node, ast.FormattedValue):
            return self._text(node.value, depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._text(node.left, depth + 1), self._text(node.right, depth + 1)
            if left is None or right is None or len(left) + len(right) > _CHARACTERS:
                return None
            return left + right
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Mult):
            return self._text(node.left, depth + 1)
        if isinstance(node, ast.IfExp):
            return self._both(node.body, node.orelse, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        return None

    def _goes_on(self, depth: int) -> bool:
        self._steps += 1
        return depth <= _DEPTH and self._steps <= _STEPS

    def _both(self, one: ast.expr, other: ast.expr, depth: int) -> str | None:
        texts = [self._text(one, depth + 1), self._text(other, depth + 1)]
        return None if None in texts else "\n".join(text or "" for text in texts)

    def _call(self, node: ast.Call, depth: int) -> str | None:
        if not isinstance(node.func, ast.Attribute):
            return self._text(node.args[0], depth + 1) if node.args else None
        base = self._text(node.func.value, depth + 1)
        texts = [self._text(argument, depth + 1) or _UNKNOWN for argument in node.args]
        method = node.func.attr
        if method == "dedent" and texts:
            return texts[0]
        if base is None:
            return None
        if method == "join" and node.args:
            parts = self.strings(node.args[0], depth + 1)
            return None if parts is None else base.join(part.text for part in parts)
        if method == "replace" and len(texts) == 2 and base.count(texts[0]) * len(texts[1]) <= _CHARACTERS:
            return base.replace(texts[0], texts[1])
        if method in ("format", "strip", "lstrip", "rstrip", "substitute", "safe_substitute"):
            return "\n".join([base, *texts])
        return None


def extension_sources(
    tree: ast.Module, origins: Origins, builders: tuple[str, ...]
) -> Iterator[Source | Unfolded]:
    """Every source given to a call of one of ``builders``, C++ and CUDA alike."""
    folder = Folder(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or origins.of(node.func) not in builders:
            continue
        given = [
            *node.args[1:3],
            *(k.value for k in node.keywords if k.arg in ("cpp_sources", "cuda_sources")),
        ]
        if any(keyword.arg is None for keyword in node.keywords):
            yield Unfolded(node.lineno)  # **options hide what is built
        for value in given:
            found = folder.strings(value)
            if found is None:
                yield Unfolded(value.lineno)
            else:
                yield from (source for source in found if source.text != "None")

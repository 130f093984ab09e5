"""A task's op records as a small graph: lookups that the semantic derivations share.

Vocabulary. A *value* is an input, a weight or an op's result; it has a name, a shape and a dtype, those of the
task's first workload. *Shape ops* rearrange a value without computing; *element ops* compute one element from
one element of each operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from extractor.schema import OpRecord, TaskSpec


class NotCovered(Exception):
    """Raised inside a derivation when the graph says something the template does not cover.

    It never leaves the catalog: :func:`optimizer.policies.catalog.semantics.derive` turns it into ``None``.
    """


@dataclass(frozen=True)
class Value:
    """One value of the graph. ``kind`` is ``input``, ``weight`` or ``op``; ``position`` counts within the kind."""

    name: str
    kind: str
    position: int
    shape: tuple[int, ...]
    dtype: str
    op: OpRecord | None = None


@dataclass(frozen=True)
class Graph:
    """Read-only view of ``TaskSpec.ops``."""

    spec: TaskSpec

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every value by name."""
        found: dict[str, Value] = {}
        for position, tensor in enumerate(self.spec.workloads[0].inputs):
            found[tensor.name] = Value(tensor.name, "input", position, tensor.shape, tensor.dtype)
        for position, weight in enumerate(self.spec.weights):
            found[weight.attribute] = Value(weight.attribute, "weight", position, weight.shape, weight.dtype)
        for position, op in enumerate(self.spec.ops):
            found[op.name] = Value(op.name, "op", position, op.shape, op.dtype, op)
        return found

    def value(self, argument: Any) -> Value:
        """The value an argument refers to. Raises NotCovered if it is not a reference."""
        name = reference(argument)
        if name is None or name not in self.values:
            raise NotCovered(f"{argument!r} is not a value of the graph")
        return self.values[name]

    @cached_property
    def outputs(self) -> tuple[Value, ...]:
        """The returned values, in order."""
        return tuple(self.value({"ref": name}) for name in self.spec.output_refs)

    def users(self, name: str) -> list[OpRecord]:
        """Ops that read ``name``, in execution order."""
        return [op for op in self.spec.ops if name in references((op.args, op.kwargs))]

    def ops_named(self, *names: str) -> list[OpRecord]:
        """Ops whose function is one of ``names``."""
        return [op for op in self.spec.ops if op.op in names]


def reference(argument: Any) -> str | None:
    """``{"ref": name}`` -> ``name``; anything else -> ``None``."""
    if isinstance(argument, dict) and set(argument) == {"ref"}:
        return str(argument["ref"])
    return None


def references(argument: Any) -> set[str]:
    """Every value name mentioned anywhere inside a nested argument."""
    name = reference(argument)
    if name is not None:
        return {name}
    if isinstance(argument, dict):
        return set().union(*(references(item) for item in argument.values())) if argument else set()
    if isinstance(argument, list | tuple):
        return set().union(*(references(item) for item in argument)) if argument else set()
    return set()


def operand(op: OpRecord, position: int, keyword: str, default: Any = None) -> Any:
    """An argument given by position or by keyword."""
    if len(op.args) > position:
        return op.args[position]
    return op.kwargs.get(keyword, default)


def whole(argument: Any, what: str) -> int:
    """An integer argument. Raises NotCovered for anything else."""
    if isinstance(argument, bool) or not isinstance(argument, int):
        raise NotCovered(f"{what} {argument!r} is no integer")
    return argument


def dtype_of(argument: Any) -> str | None:
    """``{"dtype": "float32"}`` -> ``"float32"``."""
    if isinstance(argument, dict) and set(argument) == {"dtype"}:
        return str(argument["dtype"])
    return None

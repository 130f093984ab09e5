"""Rules about what Python candidates do with code and with objects that are not theirs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from optimizer.judge.screens.banned import ALLOWED_DUNDERS
from optimizer.judge.screens.origins import Origins, under
from optimizer.judge.screens.refusal import Refusal

_TENSOR_TYPES = (
    "torch.Tensor",
    "torch.nn.Parameter",
    "torch.nn.parameter",
    "torch.nn.Buffer",
    "torch._tensor",
    "torch.FloatTensor",
    "numpy.ndarray",
)
_JIT_TYPES = ("triton.runtime", "triton.JITFunction", "triton.KernelInterface", "triton.compiler")


def patching(tree: ast.Module, origins: Origins, kernels: frozenset[str]) -> Iterator[Refusal]:
    """Writes to what is not the candidate's own: imported modules and their classes, kernels, types of objects.

    ``kernels`` are the names of the file's own kernels. ``torch.backends`` is left out: a numeric flag is found and
    reported after the run, whoever changed it.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            base = node.value
            origin = origins.of(base)
            if origin is not None and not under(origin, "torch.backends"):
                yield _patch(node.lineno, origin)
            elif isinstance(base, ast.Name) and base.id in kernels:
                yield _patch(node.lineno, f"the kernel {base.id}")
            elif isinstance(base, ast.Call) and _called(base, "type"):
                yield _patch(node.lineno, "the type of an object")
        elif isinstance(node, ast.Call) and _called(node, "setattr"):
            target, name = [*node.args, None, None][:2]
            literal = isinstance(name, ast.Constant | ast.JoinedStr)
            if not (isinstance(target, ast.Name) and target.id == "self" and literal):
                detail = "setattr is accepted on self with a literal name only; assign the attribute"
                yield Refusal("no patching", node.lineno, detail)


def _patch(line: int, what: str) -> Refusal:
    return Refusal("no patching", line, f"{what} is written to; keep what you need in attributes of ModelNew")


def _called(node: ast.Call, name: str) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == name


def dynamic_code(tree: ast.Module, origins: Origins, kernels: frozenset[str]) -> Iterator[Refusal]:
    """Attributes named at run time, types made at run time, coroutines."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield Refusal(
                "no threads or processes", node.lineno, "async code is not accepted; write plain functions"
            )
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("getattr", "hasattr") and not (
                len(node.args) >= 2 and isinstance(node.args[1], ast.Constant)
            ):
                if not _own_attribute(node):
                    detail = (
                        f"{node.func.id} with a computed name is not accepted; name the attribute literally"
                    )
                    yield Refusal("no dynamic code", node.lineno, detail)
            elif node.func.id == "type" and len(node.args) > 1:
                yield Refusal(
                    "no dynamic code",
                    node.lineno,
                    "type() that makes a class is not accepted; write the class",
                )
        elif isinstance(node, ast.Name) and node.id in ("getattr", "setattr") and id(node) not in called:
            detail = f"{node.id} passed around is not accepted; name the attribute literally"
            yield Refusal("no dynamic code", node.lineno, detail)


def _own_attribute(node: ast.Call) -> bool:
    """``getattr(self, f"weight_{i}")``: the module's own attributes, by a name with a literal beginning."""
    target, name = [*node.args, None, None][:2]
    if not (isinstance(target, ast.Name) and target.id == "self" and isinstance(name, ast.JoinedStr)):
        return False
    first = name.values[0]
    return isinstance(first, ast.Constant) and not str(first.value).startswith("_")


def classes(tree: ast.Module, origins: Origins, kernels: frozenset[str]) -> Iterator[Refusal]:
    """Classes that stand in for tensors or kernels, or that hook into how objects behave."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            origin = origins.of(base)
            if origin is not None and any(under(origin, kind) for kind in _TENSOR_TYPES):
                detail = f"class {node.name} is a {origin}; return plain torch.Tensor objects"
                yield Refusal("no tensor subclasses", node.lineno, detail)
            elif origin is not None and any(under(origin, kind) for kind in _JIT_TYPES):
                yield Refusal(
                    "no patching", node.lineno, f"class {node.name} stands in for a kernel; use triton.jit"
                )
            elif isinstance(base, ast.Call) and _called(base, "type"):
                detail = f"class {node.name} inherits from a computed type; name the base class"
                yield Refusal("no dynamic code", node.lineno, detail)
        if node.keywords:
            detail = f"class {node.name} has a metaclass or class arguments; write a plain class"
            yield Refusal("no dynamic code", node.lineno, detail)
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and _hook(item.name):
                rule = "no tensor subclasses" if item.name.startswith("__torch_") else "no hooks into objects"
                detail = f"method {item.name} is not accepted; write plain methods"
                yield Refusal(rule, item.lineno, detail)


def _hook(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in ALLOWED_DUNDERS


def fallback(tree: ast.Module, origins: Origins, kernels: frozenset[str]) -> Iterator[Refusal]:
    """Exception handlers: they hide a kernel that fails behind something else.

    Accepted are handlers around imports, and handlers that only raise.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Try | ast.TryStar) or _only_imports(node.body):
            continue
        for handler in node.handlers:
            if not all(isinstance(item, ast.Raise) for item in handler.body):
                detail = (
                    "except is not accepted; choose the path by shape or dtype, and let what fails show it"
                )
                yield Refusal("no fallback", handler.lineno, detail)


def _only_imports(body: list[ast.stmt]) -> bool:
    """Imports, and flags that say that they worked."""
    return all(
        isinstance(item, ast.Import | ast.ImportFrom)
        or (isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant))
        for item in body
    )


Rule = Callable[[ast.Module, Origins, frozenset[str]], Iterator[Refusal]]
RULES: tuple[Rule, ...] = (patching, dynamic_code, classes, fallback)

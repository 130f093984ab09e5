"""Which custom kernels a Python candidate has, and whether its ``ModelNew`` can reach one."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from optimizer.judge.screens.origins import Origins, attribute_of
from optimizer.judge.screens.refusal import Refusal

_RULE = "custom kernel"
JIT = ("triton.jit", "triton.runtime.jit.jit", "triton.experimental.gluon.jit", "triton.language.jit")
EXTENSION_BUILDERS = ("torch.utils.cpp_extension.load_inline",)
_ENTRY = ("__init__", "forward", "prepare", "__call__")


@dataclass
class Reach:
    """Definitions of a file by name, and the names that each of them mentions."""

    mentions: dict[str, set[str]] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)

    def from_(self, start: Iterable[str]) -> set[str]:
        """Every name reachable from ``start``."""
        seen: set[str] = set()
        waiting = list(start)
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += self.mentions.get(name, set()) - seen
        return seen


def triton_kernels(tree: ast.Module, origins: Origins) -> dict[str, ast.FunctionDef | None]:
    """Names of ``triton.jit`` functions, decorated or wrapped by a call, with their definition where it is known."""
    found: dict[str, ast.FunctionDef | None] = {}
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for name, node in functions.items():
        if any(_is_jit(decorator, origins) for decorator in node.decorator_list):
            found[name] = node
    for assign in ast.walk(tree):
        if isinstance(assign, ast.Assign) and isinstance(assign.value, ast.Call):
            wrapped = _wrapped(assign.value, origins, found)
            for target in assign.targets:
                if wrapped is not None and isinstance(target, ast.Name):
                    found[target.id] = functions.get(wrapped)
    return found


def _is_jit(node: ast.expr, origins: Origins) -> bool:
    return origins.of(node.func if isinstance(node, ast.Call) else node) in JIT


def _wrapped(call: ast.Call, origins: Origins, known: Iterable[str]) -> str | None:
    """The function's name in ``triton.jit(f)``, ``triton.jit(...)(f)`` or ``triton.autotune(...)(kernel)``."""
    if not call.args or not isinstance(call.args[0], ast.Name):
        return None
    name = call.args[0].id
    if _is_jit(call.func, origins):
        return name
    maker = call.func.func if isinstance(call.func, ast.Call) else None
    tuned = maker is not None and origins.of(maker) in ("triton.autotune", "triton.heuristics")
    return name if tuned and name in known else None


def screen_kernels(
    tree: ast.Module, origins: Origins, *, extensions: bool, has_global: bool
) -> Refusal | None:
    """Refuses a file without a kernel of its own, or whose ``ModelNew`` cannot reach one that stores something.

    Args:
        extensions: Language cuda, where a CUDA source with ``__global__`` is a custom kernel too.
        has_global: The file builds such a source.
    """
    kernels = triton_kernels(tree, origins)
    if not kernels and not has_global:
        want = "CUDA C++ (`__global__`, given to load_inline) or triton.jit" if extensions else "triton.jit"
        detail = f"there is none; write at least one with {want} and launch it in forward"
        return Refusal(
            _RULE, 0, f"{detail} (library calls alone are not an answer, beside a kernel they are fine)"
        )
    reach = _reach(tree, origins)
    reached = reach.from_([f"ModelNew.{name}" for name in _ENTRY])
    if has_global and "<extension>" in reached:
        return None
    used = reached & kernels.keys()
    if not used:
        name = next(iter(kernels), "the extension")
        node = kernels.get(name)
        line = node.lineno if node is not None else 0
        return Refusal(_RULE, line, f"`{name}` is never reached from ModelNew; launch it in forward")
    stores = [kernels[name] for name in used]
    if all(node is not None and not _stores(node) for node in stores):
        node = stores[0]
        assert node is not None
        return Refusal(
            _RULE,
            node.lineno,
            f"`{node.name}` stores nothing; the kernel must compute (a part of) the answer",
        )
    return None


def _stores(kernel: ast.FunctionDef) -> bool:
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call):
            step = attribute_of(node.func)
            name = step[1] if step is not None else getattr(node.func, "id", "")
            if "store" in name or name.startswith("atomic") or "scatter" in name or "inline_asm" in name:
                return True
    return False


def _reach(tree: ast.Module, origins: Origins) -> Reach:
    reach = Reach()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            reach.mentions.setdefault(node.name, set()).update(_mentions(node, origins))
        elif isinstance(node, ast.ClassDef):
            reach.classes[node.name] = node
            inner = {item for item in node.body if not isinstance(item, ast.FunctionDef)}
            said = reach.mentions.setdefault(node.name, set())
            for item in inner:
                said |= _mentions(item, origins)
            for base in node.bases:
                said |= _mentions(base, origins)
            if node.name != "ModelNew":
                said |= {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", None)
                if name is not None:
                    reach.mentions.setdefault(name, set()).update(_mentions(node.value, origins))
    for name in _ENTRY:
        reach.mentions[f"ModelNew.{name}"] = _entry(reach, name, origins)
    return reach


def _entry(reach: Reach, method: str, origins: Origins) -> set[str]:
    """What ``ModelNew``'s method mentions, its own or the first base class's in the file that has one."""
    waiting, seen = ["ModelNew"], set[str]()
    while waiting:
        name = waiting.pop(0)
        node = reach.classes.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == method:
                return _mentions(item, origins)
            if isinstance(item, ast.Assign) and any(getattr(t, "id", "") == method for t in item.targets):
                return _mentions(item.value, origins)
        waiting += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return set()


def _mentions(node: ast.AST, origins: Origins) -> set[str]:
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            found.add(inner.id)
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Load):
            found.add(inner.attr)
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value.isidentifier():
            found.add(inner.value)  # a table of kernels by name, or getattr with a literal
        if isinstance(inner, ast.Call) and origins.of(inner.func) in EXTENSION_BUILDERS:
            found.add("<extension>")
    return found

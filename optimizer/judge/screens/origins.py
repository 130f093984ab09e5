"""What a Python file's names stand for: imports and plain aliases, followed to dotted names."""

from __future__ import annotations

import ast

_ROUNDS = 8  # aliases of aliases; longer chains do not occur in honest sources and are left unresolved


class Origins:
    """Resolves expressions such as ``F.silu`` to ``torch.nn.functional.silu``.

    Scopes are not told apart: a name imported or aliased anywhere stands for that everywhere. That errs on the side of
    seeing an alias, and costs an honest source at most a renamed variable.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._names: dict[str, str] = {}
        self.bound: set[str] = set()
        aliases: list[tuple[str, ast.expr]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for item in node.names:
                    root = item.name.split(".")[0]
                    self._names[item.asname or root] = item.name if item.asname else root
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for item in node.names:
                    self._names[item.asname or item.name] = f"{node.module}.{item.name}"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.bound.add(node.name)
            elif isinstance(node, ast.arg):
                self.bound.add(node.arg)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.bound.add(node.id)
            if isinstance(node, ast.Assign):
                aliases += [(t.id, node.value) for t in node.targets if isinstance(t, ast.Name)]
            elif (
                isinstance(node, ast.AnnAssign | ast.NamedExpr)
                and isinstance(node.target, ast.Name)
                and node.value is not None
            ):
                aliases.append((node.target.id, node.value))
        for _ in range(_ROUNDS):
            found = {name: origin for name, value in aliases if (origin := self.of(value))}
            if found.items() <= self._names.items():
                break
            self._names.update(found)

    def of(self, node: ast.expr) -> str | None:
        """The dotted name an expression stands for, or None if it is not rooted in an import.

        ``getattr`` with a literal name counts as the attribute it is.
        """
        parts: list[str] = []
        while True:
            step = attribute_of(node)
            if step is None:
                break
            node, name = step
            parts.append(name)
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return None
        return ".".join([self._names[node.id], *reversed(parts)])


def attribute_of(node: ast.expr) -> tuple[ast.expr, str] | None:
    """The object and the name, for ``object.name`` and ``getattr(object, "name")``."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and len(node.args) >= 2
        and isinstance(node.args[1], ast.Constant)
        and isinstance(node.args[1].value, str)
    ):
        return node.args[0], node.args[1].value
    return None


def under(origin: str, prefix: str) -> bool:
    """True if ``origin`` is ``prefix`` or a part of it: ``torch.cuda.graph`` is under ``torch.cuda``."""
    return origin == prefix or origin.startswith(prefix + ".")

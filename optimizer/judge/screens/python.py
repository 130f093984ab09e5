"""The screen of Python candidates (languages triton and cuda): by syntax tree, nothing is run.

A candidate is a file that defines ``ModelNew``, a ``torch.nn.Module``, which launches at least one kernel of the file.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from optimizer.judge.screens import banned, conduct
from optimizer.judge.screens.carried import carried
from optimizer.judge.screens.cuda import defines_kernel, screen_cuda
from optimizer.judge.screens.folding import Unfolded, extension_sources
from optimizer.judge.screens.kernels import EXTENSION_BUILDERS, screen_kernels, triton_kernels
from optimizer.judge.screens.origins import Origins
from optimizer.judge.screens.refusal import Refusal, unreadable

_ENTRY = "entry point"
_MAX_DEPTH = 200  # of nested syntax; the interpreter itself gives up a little later, by RecursionError


def screen_python(source: str, *, extensions: bool = False) -> Refusal | None:
    """The first rule that ``source`` breaks (by line; missing parts last), or None.

    Args:
        extensions: Language cuda: CUDA sources for ``load_inline`` are accepted and screened too.
    """
    refusal = unreadable(source)
    if refusal is not None:
        return refusal
    tree = _parsed(source)
    if isinstance(tree, Refusal):
        return tree
    origins = Origins(tree)
    refused = sorted(_conduct(tree, origins, extensions), key=lambda found: found.line)
    if refused:
        return refused[0]
    refusal = _entry_point(tree, origins)
    if refusal is not None:
        return refusal
    has_global = False
    for found in extension_sources(tree, origins, EXTENSION_BUILDERS) if extensions else ():
        if isinstance(found, Unfolded):
            detail = "the sources given to load_inline must be string constants of this file"
            return Refusal("readable sources", found.line, detail)
        refusal = screen_cuda(found.text)
        if refusal is not None:
            # A constant's first line is the one its quotes open on, so both counts begin at 1.
            return refusal._replace(line=found.line + refusal.line - 1)
        has_global = has_global or defines_kernel(found.text)
    return screen_kernels(tree, origins, extensions=extensions, has_global=has_global)


def _parsed(source: str) -> ast.Module | Refusal:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # an invalid escape in a candidate's string is not the judge's warning
            tree = ast.parse(source)
    except SyntaxError as error:
        return Refusal("syntax", error.lineno or 0, f"it is not Python: {error.msg}")
    except (RecursionError, MemoryError):
        return Refusal("syntax", 0, "it is nested too deeply for Python to read")
    pending: list[tuple[ast.AST, int]] = [(node, 0) for node in tree.body]
    while pending:
        node, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return Refusal(
                "syntax", getattr(node, "lineno", 0), "it is nested too deeply; split the expression"
            )
        pending += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    tree.body = [node for node in tree.body if not _is_script(node)]
    return tree


def _is_script(node: ast.stmt) -> bool:
    """``if __name__ == "__main__":`` at the top: a candidate is imported under another name, so this never runs."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse


def _conduct(tree: ast.Module, origins: Origins, extensions: bool) -> Iterator[Refusal]:
    kernels = frozenset(triton_kernels(tree, origins))
    yield from banned.imports(tree, extensions=extensions)
    yield from banned.names_used(tree, origins, extensions=extensions)
    for rule in (*conduct.RULES, carried):
        yield from rule(tree, origins, kernels)


def _entry_point(tree: ast.Module, origins: Origins) -> Refusal | None:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    model = classes.get("ModelNew")
    if model is None:
        detail = (
            "there is no class ModelNew at the top of the file; define it as a torch.nn.Module with a forward"
        )
        return Refusal(_ENTRY, 0, detail)
    lineage, unknown = _lineage(model, classes, origins)
    if unknown:
        detail = f"ModelNew inherits from `{unknown}`, which this file does not define; inherit from torch.nn.Module"
        return Refusal(_ENTRY, model.lineno, detail)
    defined = {item.name for node in lineage for item in node.body if isinstance(item, ast.FunctionDef)}
    if "forward" not in defined:
        return Refusal(_ENTRY, model.lineno, "ModelNew defines no forward; define forward(self, ...)")
    return None


def _lineage(
    model: ast.ClassDef, classes: dict[str, ast.ClassDef], origins: Origins
) -> tuple[list[ast.ClassDef], str]:
    """The model's class and its bases in the file, and the first base that is neither of the file nor torch's."""
    found: list[ast.ClassDef] = []
    waiting = [model]
    rooted = False
    while waiting:
        node = waiting.pop(0)
        if node in found:
            continue
        found.append(node)
        for base in node.bases:
            origin = origins.of(base)
            if isinstance(base, ast.Name) and base.id in classes:
                waiting.append(classes[base.id])
            elif origin is not None and origin.startswith("torch.nn."):
                rooted = True
            elif origin not in ("abc.ABC", "typing.Generic", "typing.Protocol"):
                return found, ast.unparse(base)
    return found, "" if rooted else "object"

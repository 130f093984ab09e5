"""Rules about state that a Python candidate carries from one call to the next.

Scratch buffers, packed weights and compiled configurations may be kept. What may not: answers, and anything that tells
one call from another (addresses, identities, values, counts).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from optimizer.judge.screens.origins import Origins, attribute_of
from optimizer.judge.screens.refusal import Refusal
from optimizer.judge.screens.tokens import names

_RULE = "no caching between calls"
_INSTEAD = "compute every call from its arguments; keep at most packed weights and scratch"
_MARKS = names("data_ptr _version _cdata")  # attributes that tell one tensor from another
_LOOKUPS = names("get setdefault pop add")
_CARRIERS = names("int str tuple list hash repr")  # an address is still one behind these
_SET_UP = names("__init__ prepare")  # may keep whatever they like: they see no call's arguments
_VALUE_TESTS = ("torch.equal", "torch.allclose", "torch.isclose")


def carried(tree: ast.Module, origins: Origins, kernels: frozenset[str]) -> Iterator[Refusal]:
    """Every rule of this module, over all functions but kernels and those that set a model up."""
    globals_ = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    quiet = _set_up_only(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name not in kernels and node.name not in _SET_UP:
            yield from _marks(node)
            if node.name not in quiet:
                yield from _counts(node)
            yield from _value_tests(node, origins, globals_)
            yield from _memoised(node, origins, kernels)
            if node.name == "forward":
                yield from _kept_answers(node, globals_)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("id", "hash")
        ):
            yield Refusal(_RULE, node.lineno, f"`{node.func.id}` tells calls apart; {_INSTEAD}")


def _set_up_only(tree: ast.Module) -> frozenset[str]:
    """Functions that only ``__init__`` and ``prepare`` call, or functions of this kind: no call of forward is seen.

    Every mention of their name, whatever object it is looked up on, must be such a call.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = {node.name for node in functions if not node.name.startswith("_call") and not _is_hook(node.name)}
    called: dict[str, set[str]] = {}  # by name, the functions that call it
    inside: dict[int, str] = {}  # by id of a node, the innermost function it is in
    for function in functions:  # outer ones come first
        inside |= {id(node): function.name for part in function.body for node in ast.walk(part)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda | ast.GeneratorExp):  # made here, run who knows where
            for later in ast.walk(node):
                inside.pop(id(later), None)
    callees = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in found:
                if id(node) in callees and id(node) in inside:
                    called.setdefault(name, set()).add(inside[id(node)])
                else:
                    found.discard(name)
            case ast.Constant(value=str(name)):
                found.discard(name)
    found &= set(called)
    while loud := {name for name in found if not called[name] <= found | _SET_UP}:
        found -= loud
    return frozenset(found)


def _is_hook(name: str) -> bool:
    """Names that torch calls by itself."""
    return name in ("forward", "extra_repr", "train", "apply", "to") or (name[:2] == "__" == name[-2:])


def _marks(function: ast.FunctionDef) -> Iterator[Refusal]:
    """Addresses and versions of tensors used as keys or compared; alignment tests and pointer tables are fine."""
    marked: set[str] = set()
    for _ in range(3):  # names of names; honest code has none, and two steps are seen
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and _is_marked(node.value, marked):
                marked |= {t.id for t in node.targets if isinstance(t, ast.Name)}
            elif isinstance(node, ast.NamedExpr) and _is_marked(node.value, marked):
                marked.add(node.target.id)
    for node in ast.walk(function):
        if any(_is_marked(item, marked) for item in _telling_places(node)):
            detail = (
                f"a tensor's address or version is kept or compared; {_INSTEAD} "
                "(testing the alignment, `data_ptr() % 16`, is fine)"
            )
            yield Refusal(_RULE, getattr(node, "lineno", function.lineno), detail)


def _telling_places(node: ast.AST) -> list[ast.expr]:
    """The parts of ``node`` where an address would tell one call from another: comparisons, keys, what is kept."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Subscript):
        return [node.slice]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKUPS:
        return node.args[:1]
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    if isinstance(node, ast.FormattedValue):
        return [node.value]
    if isinstance(node, ast.Assign) and any(_is_own(target) for target in node.targets):
        return [node.value]
    return []


def _is_marked(node: ast.AST, marked: set[str]) -> bool:
    """True if the expression carries an address onward; not through ``%``, calls that take it, or attributes."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.BitAnd):
        return False
    if isinstance(node, ast.Name):
        return node.id in marked
    if isinstance(node, ast.Attribute):
        return node.attr == "_version"
    if isinstance(node, ast.Call):
        step = attribute_of(node.func)
        if step is not None and step[1] in _MARKS:
            return True
        plain = isinstance(node.func, ast.Name) and node.func.id in _CARRIERS
        return plain and any(_is_marked(item, marked) for item in node.args)
    if isinstance(node, ast.Tuple | ast.List | ast.BinOp | ast.GeneratorExp | ast.ListComp | ast.JoinedStr):
        return any(_is_marked(child, marked) for child in ast.iter_child_nodes(node))
    return isinstance(node, ast.FormattedValue) and _is_marked(node.value, marked)


def _is_own(node: ast.AST) -> bool:
    """``self.name`` or something inside it."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _counts(function: ast.FunctionDef) -> Iterator[Refusal]:
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    for node in ast.walk(function):
        if not isinstance(node, ast.AugAssign):
            continue
        if _is_own(node.target) or (isinstance(node.target, ast.Name) and node.target.id in shared):
            yield Refusal(_RULE, node.lineno, f"a count that outlives the call is kept; {_INSTEAD}")


def _value_tests(function: ast.FunctionDef, origins: Origins, globals_: set[str]) -> Iterator[Refusal]:
    """Inputs compared with what an earlier call left: by identity, or by value."""
    rebindable = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            sides = [node.left, *node.comparators]
            known = any(
                isinstance(side, ast.Constant)
                or origins.of(side) is not None
                or (isinstance(side, ast.Name) and side.id in globals_ - rebindable)
                for side in sides
            )
            if not known and any(_is_kept(side, rebindable) for side in sides):
                yield Refusal(_RULE, node.lineno, f"an argument is compared with a kept object; {_INSTEAD}")
        elif isinstance(node, ast.Call):
            origin, step = origins.of(node.func), attribute_of(node.func)
            tested = list(node.args)
            if step is not None and step[1] in ("equal", "allclose") and origin is None:
                tested.append(step[0])
            elif origin not in _VALUE_TESTS:
                continue
            if any(_is_kept(item, globals_) for item in tested):
                yield Refusal(
                    _RULE, node.lineno, f"an argument's values are compared with kept ones; {_INSTEAD}"
                )


def _is_kept(node: ast.AST, globals_: set[str]) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return _is_own(node) or (isinstance(node, ast.Name) and node.id in globals_)


def _memoised(function: ast.FunctionDef, origins: Origins, kernels: frozenset[str]) -> Iterator[Refusal]:
    """A memoised function that launches kernels or makes tensors keeps answers by the identity of its arguments."""
    for decorator in function.decorator_list:
        plain = decorator.func if isinstance(decorator, ast.Call) else decorator
        if origins.of(plain) not in ("functools.lru_cache", "functools.cache", "functools.cached_property"):
            continue
        launches = any(
            isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in kernels
            for node in ast.walk(function)
        )
        if launches:
            detail = f"{function.name} launches a kernel and is memoised; {_INSTEAD}"
            yield Refusal(_RULE, function.lineno, detail)


def _kept_answers(forward: ast.FunctionDef, globals_: set[str]) -> Iterator[Refusal]:
    """``forward`` returns an object that the model or the file keeps, and that the same ``forward`` fills or sets.

    Returning a part of a table made on construction (a rotary embedding's cosines) is fine: no call changes it.
    """
    outer = globals_ - _rebound(forward)
    filled = {_root(node) for node in _filled(forward) if _is_kept(node, outer)}
    names_: dict[str, str] = {}  # local name -> the kept object it is bound to
    for node in ast.walk(forward):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and _is_kept(node.value, outer):
                names_[target.id] = _root(node.value)
            elif not isinstance(target, ast.Name) and _is_kept(target, outer):
                filled.add(_root(target))
                names_.update({v.id: _root(target) for v in _parts(node.value) if isinstance(v, ast.Name)})
    filled |= {names_[n.id] for n in _filled(forward) if isinstance(n, ast.Name) and n.id in names_}
    for node in ast.walk(forward):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        for item in _parts(node.value):
            root = names_.get(item.id) if isinstance(item, ast.Name) else None
            if root is None and _is_kept(item, outer):
                root = _root(item)
            if root in filled:
                detail = f"forward returns an object that outlives the call; return a new tensor ({_INSTEAD})"
                yield Refusal(_RULE, item.lineno, detail)


def _filled(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Expressions handed to a call, or whose in-place method is called: what the function may write to."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            yield from node.args
            yield from (keyword.value for keyword in node.keywords)
            if isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
                yield node.func.value


def _root(node: ast.AST) -> str:
    """``self.cache`` for ``self.cache[key][0]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return ast.unparse(node)


def _rebound(function: ast.FunctionDef) -> set[str]:
    """Names the function binds itself; they hide a global of that name."""
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    bound = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
    return bound - shared


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """The tensors a returned expression is made of, through tuples, lists, choices, views and copies of entries."""
    if isinstance(node, ast.Tuple | ast.List):
        for item in node.elts:
            yield from _parts(item)
    elif isinstance(node, ast.IfExp):
        yield from _parts(node.body)
        yield from _parts(node.orelse)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("view", "reshape", "view_as", "unsqueeze", "squeeze", "detach", "expand", "t")
    ):
        yield from _parts(node.func.value)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "clone"
        and isinstance(node.func.value, ast.Subscript)
    ):
        yield node.func.value  # a copy of what was looked up; a copy of the scratch itself is fine
    else:
        yield node

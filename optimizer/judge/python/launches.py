"""Counts the custom kernels a candidate launches, suppresses them on demand, and writes down what was launched.

What is counted here is counted in the candidate's own process: a claim. The knock-out is what decides: a forward whose
outputs stay right without its custom kernels computes them by other means.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

MOST_RECORDS = 32
_MOST_OF_A_KERNEL = 8


class Mode(StrEnum):
    """What becomes of a launch."""

    RUN = "run"
    SUPPRESS = "suppress"  # counted, not run: its outputs stay as they were
    COMPILE = "compile"  # compiled, not run; Triton only


class Ledger:
    """Launches of one worker. ``extra_count`` and ``extra_knock_out`` join kernels of another kind (extensions)."""

    def __init__(self) -> None:
        self.mode = Mode.RUN
        self.extra_count: Callable[[], int] = lambda: 0
        self.extra_knock_out: Callable[[bool], None] = lambda on: None
        self._launched = 0
        self._records: list[dict[str, Any]] = []
        self._seen: dict[str, str] = {}
        self._tuning: Callable[[], bool] = lambda: False

    @property
    def count(self) -> int:
        """Launches so far, suppressed ones included."""
        return self._launched + self.extra_count()

    def knock_out(self, on: bool) -> None:
        """Suppress launches, or let them through again."""
        self.mode = Mode.SUPPRESS if on else Mode.RUN
        self.extra_knock_out(on)

    def take_records(self) -> list[dict[str, Any]]:
        """Distinct launches written down since the last call."""
        records, self._records = self._records, []
        return records

    def install(self, *, interpret: bool) -> None:
        """Put the ledger between all Triton kernels and their launch, those made later too."""
        if interpret:
            from optimizer.judge.python import tuning

            self._tuning = tuning.running
        kind: Any = _kernel_type(interpret)
        launch = kind.run

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            if warmup:
                return launch(kernel, *args, grid=grid, warmup=True, **options)
            self._launched += 1
            if self.mode is Mode.SUPPRESS:
                return None
            if interpret:
                self._write_down(kernel, args, options)
            compiling = self.mode is Mode.COMPILE
            compiled = launch(kernel, *args, grid=grid, warmup=compiling, **options)
            if compiling:
                getattr(compiled, "run", None)  # builds its launcher, too
            return compiled

        kind.run = run

    def _write_down(self, kernel: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        if len(self._seen) >= MOST_RECORDS:
            return
        record = describe_launch(kernel.fn, args, options)
        if self._tuning():
            record["tuned"] = True
        key, name = repr(record), record["kernel"]
        if key not in self._seen and list(self._seen.values()).count(name) < _MOST_OF_A_KERNEL:
            self._seen[key] = name
            self._records.append(record)


def _kernel_type(interpret: bool) -> type:
    if interpret:
        from triton.runtime.interpreter import InterpretedFunction

        return InterpretedFunction
    from triton.runtime.jit import JITFunction

    return JITFunction


def describe_launch(fn: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """A launch as JSON data: kernel name and first line, types of its arguments, constants, compile options.

    ``problem`` is there instead of types if an argument has no such description.
    """
    names = list(inspect.signature(fn).parameters)
    record: dict[str, Any] = {"kernel": fn.__name__, "line": fn.__code__.co_firstlineno}
    own = {key: value for key, value in options.items() if key in names}
    try:
        bound = inspect.getcallargs(fn, *args, **own)
        signature: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        nested: list[Any] = []
        for name in names:
            if "constexpr" in str(fn.__annotations__.get(name, "")) or bound[name] is None:
                signature[name] = "constexpr"
                constants[name] = _constant(bound[name])
            else:
                signature[name] = _type(bound[name], (names.index(name),), nested)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        return record | {"problem": f"{type(error).__name__}: {error}"[:200]}
    compile_options = {
        key: value
        for key, value in options.items()
        if key in ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion") and value is not None
    }
    record |= {"signature": signature, "constants": constants, "options": compile_options}
    return record | {"nested": nested} if nested else record


def _type(value: Any, path: tuple[int, ...], nested: list[Any]) -> Any:
    """The type of an argument, a list of types for a tuple. Constants inside go to ``nested`` as [path, value]."""
    import triton.language as tl
    from triton.runtime.jit import mangle_type

    if isinstance(value, tuple):
        return [_type(item, (*path, place), nested) for place, item in enumerate(value)]
    if path[1:] and (value is None or isinstance(value, tl.constexpr)):
        nested.append([list(path), _constant(value)])
        return "constexpr"
    return str(mangle_type(value))


def _constant(value: Any) -> Any:
    import triton.language as tl

    value = getattr(value, "value", value) if isinstance(value, tl.constexpr) else value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tl.dtype):
        return {"dtype": value.name}
    raise TypeError(f"constant of type {type(value).__name__}")

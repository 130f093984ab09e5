"""Autotuned kernels in the interpreter: there is nothing to measure, so the configs take turns, one a launch.

Any of them may be the fastest on a GPU, so each must give right answers.
"""

from __future__ import annotations

import contextvars
import weakref
from typing import Any

from triton.runtime.autotuner import Autotuner


class Turns:
    """The configs of one autotuned kernel. Each key has its own list, since configs may be pruned by key."""

    def __init__(self) -> None:
        self.by_key: dict[Any, list[Any]] = {}
        self.measured: list[Any] = []  # configs that were to be measured for a new key
        self.tried: set[int] = set()
        self.turn = 0

    def untried(self) -> int:
        """Configs that were never launched; one that stands in several lists counts once."""
        return len({id(config) for configs in self.by_key.values() for config in configs} - self.tried)


_RUNNING: contextvars.ContextVar[bool] = contextvars.ContextVar("tuned launch", default=False)
_TURNS: weakref.WeakKeyDictionary[Any, Turns] = weakref.WeakKeyDictionary()


def install() -> None:
    """Let configs take turns in this process, for good."""
    tuner: Any = Autotuner
    run = tuner.run

    def measure(self: Any, *_args: Any, config: Any, **_meta: Any) -> tuple[float, float, float]:
        _TURNS[self].measured.append(config)
        return (0.0, 0.0, 0.0)

    def take_turns(self: Any, *args: Any, **kwargs: Any) -> Any:
        turns = _TURNS.setdefault(self, Turns())
        for key, configs in turns.by_key.items():
            self.cache[key] = configs[turns.turn % len(configs)]
        turns.turn += 1
        turns.measured = []
        token = _RUNNING.set(len(self.configs) > 1)
        try:
            result = run(self, *args, **kwargs)
        finally:
            _RUNNING.reset(token)
        if turns.measured:
            turns.by_key[list(self.cache)[-1]] = turns.measured
        turns.tried.add(id(self.best_config))
        return result

    tuner._bench, tuner.run = measure, take_turns


def running() -> bool:
    """Whether what is launched now is one config of several, which a GPU's autotuner may pass over."""
    return _RUNNING.get()


def untried() -> int:
    """Configs of all kernels launched so far that were never launched themselves."""
    return sum(turns.untried() for turns in _TURNS.values())


def tuned() -> bool:
    """Whether any kernel launched so far has more than one config."""
    return any(len(configs) > 1 for turns in _TURNS.values() for configs in turns.by_key.values())

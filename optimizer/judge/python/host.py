"""The untrusted side for Python candidates: forked from a warm process, it loads one candidate behind walls and calls
it when told.

Nothing it says is believed except that it is done; what it says besides (launches, times, changed state) are claims,
which the judge only ever uses against the candidate or checks from outside. Messages: :mod:`optimizer.judge.wire`.
"""

from __future__ import annotations

import ctypes
import json
import linecache
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import torch

from extractor.program import bind_state, merge, move_to, seeded, state_of
from optimizer.judge import wire
from optimizer.judge.device.stage import NotCapturable
from optimizer.judge.isolation.walls import WallPlan, raise_last_wall, raise_outer_walls
from optimizer.judge.numeric_state import NumericState, written_down
from optimizer.judge.python.claims import NotWhatItReturns, check_apart, check_outputs, flatten
from optimizer.judge.python.faults import FaultWatch
from optimizer.judge.python.launches import Ledger, Mode
from optimizer.judge.python.memory import KINDS, MappedMemory, Memory
from optimizer.languages.fenv import control_word

SOURCE_NAME = "candidate.py"
MODULE_NAME = "candidate"
_M_PERTURB = -6
_POISON = 0x80  # glibc fills new memory with its complement, 0x7f..: about 3e38 as fp32 and bf16, NaN as fp16
_EVENT_WARMUPS = 3
_MAX_ERROR = 500  # characters of an exception that are passed on

Call = Callable[[], object]


class Stage(Protocol):
    """What a device offers around the calls; see :class:`optimizer.judge.device.stage.Stage`."""

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        ...

    def poison(self, size: int) -> None:
        """Spoil free memory before calls that will need ``size`` bytes."""
        ...

    def overrun(self, output: torch.Tensor) -> bool:
        """True if memory just behind an output was written."""
        ...

    def nudge(self) -> None:
        """Have the device turn to this process."""
        ...

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy a result to the judge's memory."""
        ...

    def events(self, count: int, calls: Sequence[Call] = ()) -> list[float]:
        """Microseconds of each call on the device, the cache cold, after ``count`` empty ones."""
        ...

    def replay(self, region: int, calls: Sequence[Call]) -> list[object]:
        """Replay all calls from one graph, captured the first time; what they return."""
        ...

    def forget(self) -> None:
        """Drop graphs."""
        ...

    def profile(self, calls: Sequence[Call]) -> list[tuple[str, int, float]]:
        """(kernel, launches, microseconds) over the calls."""
        ...


class Answer(NamedTuple):
    """Status and text of the answer to a command."""

    status: int
    text: str


class Host:
    """One candidate and what it is called on.

    Args:
        plan: what the judge wants of this worker.
        memory: the judge's inputs, weights and outputs.
        stage: the device; None on the CPU.
        ledger: counts launches; already installed.
    """

    def __init__(self, plan: Mapping[str, Any], memory: Memory, stage: Stage | None, ledger: Ledger) -> None:
        self._plan = plan
        self._memory = memory
        self._stage = stage
        self._ledger = ledger
        self._constants = {int(position): value for position, value in plan.get("constants", {}).items()}
        self._module: ModuleType | None = None
        self._models: dict[int, torch.nn.Module] = {}
        self._inputs: dict[tuple[int, int], list[Any]] = {}
        self._kept: dict[int, dict[int, object]] = {}
        self._bound: dict[int, list[Call]] = {}
        self._clean = NumericState.capture()

    def load(self) -> dict[str, Any]:
        """Execute the candidate's source as a module."""
        self._module = execute(self._plan["source"])
        return {}

    def pack(self, copy: int, seed: int) -> dict[str, Any]:
        """Construct the model on one weight copy anew, under seed number ``seed`` of the plan or the last one."""
        assert self._module is not None
        self._models.pop(copy, None)
        self._bound.clear()
        if self._stage is not None:
            self._stage.forget()
        seeds = self._plan["seeds"]
        described = self._plan["weights"]
        weights = {
            name: self._memory.tensor("weights", abi, copy * described["bytes"])
            for name, abi in zip(described["attributes"], described["tensors"], strict=True)
        }
        seed = seeds[min(seed, len(seeds) - 1)]
        device = self._plan["device"]
        self._models[copy], unmatched = construct_new(self._module, self._plan["init"], seed, weights, device)
        return {"unmatched": unmatched} if unmatched else {}

    def run(self, region: int, first: int, count: int) -> dict[str, Any]:
        """Call the candidate on ``count`` slots and keep the results; fewest launches of a call."""
        self._kept.setdefault(region, {}).clear()
        if self._stage is not None and region % 2:  # timed from outside: nothing but the calls
            calls = self._calls(region)[first : first + count] if count else []
            for call in calls:
                call()
            self._synchronize()
            return {}
        if self._stage is not None:
            self._stage.poison(count * self._plan["regions"][region]["outputs"]["bytes"])
        fewest = -1
        for slot in range(first, first + count):
            before = self._ledger.count
            self._call(region, slot)()
            launched = self._ledger.count - before
            fewest = launched if fewest < 0 else min(fewest, launched)
        self._synchronize()
        answer: dict[str, Any] = {"launches": max(fewest, 0)}
        if records := self._ledger.take_records():
            answer["records"] = records
        if self._plan["interpret"]:
            answer |= _about_configs()
        return answer

    def publish(self, region: int, first: int, count: int) -> dict[str, Any]:
        """Check the kept results of some slots and copy them to the judge's memory."""
        if self._ledger.mode is Mode.COMPILE:
            return {}
        side = self._plan["regions"][region]["outputs"]
        kept = [flatten(self._kept[region][slot]) for slot in range(first, first + count)]
        check_apart(kept)
        for slot, tensors in zip(range(first, first + count), kept, strict=True):
            check_outputs(tensors, side["tensors"], self._plan["device"])
            for number, (tensor, abi) in enumerate(zip(tensors, side["tensors"], strict=True)):
                if self._stage is not None and region % 2 == 0 and self._stage.overrun(tensor):
                    raise NotWhatItReturns(f"memory behind output {number} was written")
                place = self._memory.tensor("outputs", abi, side["base"] + slot * side["bytes"])
                if self._stage is None:
                    place.copy_(tensor)
                else:
                    self._stage.copy(place, tensor)
        self._synchronize()
        return {}

    def knock_out(self, on: bool) -> dict[str, Any]:
        """Suppress custom launches, or let them through again."""
        self._ledger.knock_out(on)
        return {}

    def wake(self) -> dict[str, Any]:
        """The device turns to this process; nothing of the candidate runs."""
        assert self._stage is not None
        self._stage.nudge()
        return {}

    def time(self, region: int) -> dict[str, Any]:
        """Every slot once, cold; microseconds of each by device events."""
        assert self._stage is not None
        return {"events_us": self._stage.events(_EVENT_WARMUPS, self._calls(region))}

    def replay(self, region: int) -> dict[str, Any]:
        """Replay all slots from one graph; captured at the first call."""
        assert self._stage is not None
        results = self._stage.replay(region, self._calls(region))
        kept = self._kept.setdefault(region, {})
        kept.clear()
        kept.update(enumerate(results))
        return {}

    def profile(self, region: int) -> dict[str, Any]:
        """Kernels of one pass over the slots."""
        assert self._stage is not None
        calls = self._calls(region)
        start = time.perf_counter()
        for call in calls:
            call()
        self._synchronize()
        wall_us = (time.perf_counter() - start) * 1e6
        return {"kernels": self._stage.profile(calls)[:40], "calls": len(calls), "wall_us": wall_us}

    def state_changes(self) -> list[str]:
        """What of the numeric state is not as it was before the candidate was loaded."""
        return list(self._clean.changes(NumericState.capture()))

    def _calls(self, region: int) -> list[Call]:
        """Calls of all slots, bound once."""
        if region not in self._bound:
            slots = self._plan["regions"][region]["slots"]
            self._bound[region] = [self._call(region, slot) for slot in range(slots)]
        return self._bound[region]

    def _call(self, region: int, slot: int) -> Call:
        """A call of forward on one slot that also keeps what it returns."""
        described = self._plan["regions"][region]
        model = self._models[slot % described["copies"]]
        if (region, slot) not in self._inputs:
            side = described["inputs"]
            base = side["base"] + slot * side["bytes"]
            tensors = [self._memory.tensor("inputs", abi, base) for abi in side["tensors"]]
            self._inputs[region, slot] = merge(tensors, self._constants)
        arguments = self._inputs[region, slot]
        kept = self._kept.setdefault(region, {})

        def call() -> object:
            kept[slot] = result = model(*arguments)
            return result

        return call

    def _synchronize(self) -> None:
        if self._stage is not None:
            self._stage.synchronize()


def construct_new(
    module: ModuleType, init: Sequence[Any], seed: int, weights: Mapping[str, torch.Tensor], device: str
) -> tuple[torch.nn.Module, list[str]]:
    """``ModelNew(*init)`` under ``seed`` on ``device``, over those ``weights`` that it has, prepared.

    A weight is taken over, not copied, where the model has a parameter or buffer of its name, shape and dtype. Also
    the weights that found none, unless all that the model has are taken: then it may well need no more.
    """
    with seeded(seed):
        model: torch.nn.Module = module.ModelNew(*init)
    model = model.eval().requires_grad_(False)
    if device != "cpu":
        model = move_to(model, device)
    present = state_of(model)
    bound: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        own = present.get(name)
        if own is not None and own.shape == tensor.shape and own.dtype == tensor.dtype:
            bound[name] = tensor
    bind_state(model, bound)
    if callable(prepare := getattr(model, "prepare", None)):
        prepare()
    idle = not present or len(bound) < len(present)
    return model, [name for name in weights if name not in bound] if idle else []


def execute(source: str) -> ModuleType:
    """Execute a candidate's source as the module ``candidate``. Raises whatever it raises."""
    # Triton reads the text of its kernels back; there is no file.
    linecache.cache[SOURCE_NAME] = (len(source), None, source.splitlines(keepends=True), SOURCE_NAME)
    module = ModuleType(MODULE_NAME)
    module.__file__ = SOURCE_NAME
    sys.modules[MODULE_NAME] = module
    exec(compile(source, SOURCE_NAME, "exec"), module.__dict__)
    return module


def serve(channel: int, plan: dict[str, Any], files: Sequence[int]) -> None:
    """Confine this process, greet, and answer commands until the channel closes."""
    walls = WallPlan.from_json(plan["walls"])
    on_cpu = plan["device"] == "cpu"
    if on_cpu:
        ctypes.CDLL(None).mallopt(ctypes.c_int(_M_PERTURB), ctypes.c_int(_POISON))
        mapped = MappedMemory(files, plan["sizes"])
        walls = walls._replace(address_space=address_space() + plan["memory_cap"])
    raised = raise_outer_walls(walls)
    with written_down(plan["threads"]):
        memory: Memory
        stage: Stage | None = None
        bases, read_only = [0, 0, 0], []
        ledger = Ledger()
        ledger.install(interpret=plan["interpret"])
        if plan["interpret"]:
            _answer_for(plan.get("capability", 90))
        if on_cpu:
            memory = mapped
            bases = [mapped.bases[kind] for kind in KINDS]
            read_only = [(mapped.bases[kind], plan["sizes"][kind]) for kind in KINDS[:2]]
        else:
            memory, stage = _device(plan)
        if plan["language"] == "cuda":
            _install_extensions(plan, ledger)
        if plan["build"]:
            ledger.mode = Mode.COMPILE
        raised.append(raise_last_wall(walls))
        host = Host(plan, memory, stage, ledger)
        with FaultWatch(channel, SOURCE_NAME, read_only):
            os.write(channel, wire.hello([tuple(wall) for wall in raised], bases, control_word()))
            while message := os.read(channel, wire.COMMAND.size):
                answer = _carry_out(host, *wire.COMMAND.unpack(message))
                os.write(channel, wire.done(answer.status, control_word(), answer.text))


def _carry_out(host: Host, action: int, first: int, second: int, third: int) -> Answer:
    """One command; whatever the candidate raises is the answer."""
    actions: dict[int, Callable[[], dict[str, Any]]] = {
        wire.LOAD: host.load,
        wire.PACK: lambda: host.pack(first, second),
        wire.RUN: lambda: host.run(first, second, third),
        wire.PUBLISH: lambda: host.publish(first, second, third),
        wire.KNOCK_OUT: lambda: host.knock_out(bool(first)),
        wire.TIME: lambda: host.time(first),
        wire.REPLAY: lambda: host.replay(first),
        wire.PROFILE: lambda: host.profile(first),
        wire.WAKE: host.wake,
    }
    try:
        answer = actions[action]()
        if changes := host.state_changes():
            answer["state"] = changes
        return Answer(wire.OK, json.dumps(answer))
    except NotWhatItReturns as error:
        return Answer(wire.NOT_WHAT_IT_SAYS, json.dumps({"error": str(error)[:_MAX_ERROR]}))
    except NotCapturable as error:
        return Answer(wire.NOT_CAPTURABLE, json.dumps({"error": str(error)[:_MAX_ERROR]}))
    except BaseException as error:  # noqa: BLE001  the border to untrusted code: SystemExit too
        return Answer(wire.RAISED, json.dumps(describe_error(error)))


def describe_error(error: BaseException) -> dict[str, Any]:
    """An exception of the candidate as JSON data: its innermost cause, the message and the line of the candidate."""
    line = 0
    while True:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == SOURCE_NAME:
                line = trace.tb_lineno
            trace = trace.tb_next
        if type(error).__name__ != "InterpreterError" or error.__cause__ is None:
            break
        error = error.__cause__
    if isinstance(error, SyntaxError) and error.filename == SOURCE_NAME:
        line = error.lineno or 0
    text = str(error)[:_MAX_ERROR].strip()
    return {"error": f"{type(error).__name__}: {text}" if text else type(error).__name__, "line": line}


def _about_configs() -> dict[str, Any]:
    """How far the configs of autotuned kernels have had their turn."""
    from optimizer.judge.python import tuning

    return {"untried": tuning.untried(), "tuned": tuning.tuned()}


def _answer_for(capability: int) -> None:
    from optimizer.judge.python import emulation

    emulation.answer_for(capability)


def _device(plan: Mapping[str, Any]) -> tuple[Memory, Stage]:
    from optimizer.judge.device.memory import IpcMemory
    from optimizer.judge.device.stage import Stage as DeviceStage
    from optimizer.judge.device.stage import use_cache

    stage = DeviceStage(plan["device"], plan["memory_cap"])
    use_cache(plan["cache"])
    return IpcMemory(dict(plan)), stage


def _install_extensions(plan: Mapping[str, Any], ledger: Ledger) -> None:
    from pathlib import Path

    from optimizer.languages.cuda_host import Extensions

    described = plan["extensions"]
    requests = Path(described["requests"]) if described["requests"] else None
    extensions = Extensions(Path(described["folder"]), described["toolchain"], requests)
    extensions.install()
    extensions.knock_out(plan["build"])
    ledger.extra_count = extensions.launches
    ledger.extra_knock_out = extensions.knock_out


def address_space() -> int:
    """Bytes of address space this process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")

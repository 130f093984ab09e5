"""The untrusted side of a tool's run: one candidate, constructed and called in a process of its own, from files.

Nothing of the judge is reachable from here, and nothing is measured or compared: the tool that this process runs
under does the looking. What is printed only says how far it came.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from extractor.program import merge
from optimizer.judge.device.handout import Handout
from optimizer.judge.device.stage import use_cache
from optimizer.judge.numeric_state import written_down
from optimizer.judge.python.host import construct_new, execute

WORKLOAD, DONE = "kernelgraft-workload ", "kernelgraft-done"
EACH, COUNTED = "each", "counted"


def main(arguments: list[str]) -> None:
    """``PLAN each``: every workload once. ``PLAN counted``: the heaviest one, called once before the tool looks.

    Raises whatever the candidate raises.
    """
    plan, manner = arguments
    handout = Handout(Path(plan))
    synchronize = _prepare(handout, Path(plan).parent)
    with written_down(handout.plan["threads"]):
        module = execute(handout.plan["source"])
        described = handout.plan
        model, _ = construct_new(
            module, described["init"], described["seed"], handout.weights(), handout.device
        )
        constants = {int(position): value for position, value in described["constants"].items()}
        for number, workload in enumerate(described["workloads"]):
            if manner == COUNTED and workload["id"] != described["heaviest"]:
                continue
            arguments_ = merge(handout.inputs(number), constants)
            _say(f"{WORKLOAD}{workload['id']}")
            if manner == COUNTED:
                model(*arguments_)  # compiles, tunes, and sets libraries up
                synchronize()
            with _counting(handout.device) if manner == COUNTED else contextlib.nullcontext():
                model(*arguments_)
                synchronize()
    _say(DONE)


def _prepare(handout: Handout, folder: Path) -> Callable[[], None]:
    """Set the device, Triton's cache and extensions up; what waits for the device."""
    described = handout.plan["extensions"]
    if described is not None:
        from optimizer.languages.cuda_host import Extensions

        Extensions(Path(described["folder"]), described["toolchain"], None).install()
    if handout.device == "cpu":
        return lambda: None
    torch.cuda.set_device(torch.device("cuda", torch.device(handout.device).index or 0))
    torch.empty(1, device=handout.device)
    cache = folder / "kernels"
    cache.mkdir(exist_ok=True)
    use_cache(str(cache))
    return torch.cuda.synchronize


@contextlib.contextmanager
def _counting(device: str) -> Iterator[None]:
    """A tool that was told to wait for it looks at what happens inside."""
    if device == "cpu":
        yield
        return
    torch.cuda.profiler.start()
    yield
    torch.cuda.profiler.stop()


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())

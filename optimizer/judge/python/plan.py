"""The plan of a Python worker, as JSON data: what it loads, how it is confined, and where the judge's tensors lie."""

from __future__ import annotations

from typing import Any

from optimizer.candidate import Candidate
from optimizer.judge.isolation.walls import WallPlan
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subjects


def worker_plan(
    subjects: Subjects,
    settings: JudgeSettings,
    candidate: Candidate,
    walls: WallPlan,
    *,
    interpret: bool,
    memory_cap: int,
    cache: str = "",
    build: bool = False,
    handles: dict[str, str] | None = None,
    extensions: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A plan for :meth:`optimizer.judge.python.spawn.Zygote.start`.

    Args:
        walls: how to confine it. On the CPU its address space is limited to what the process has plus ``memory_cap``.
        interpret: the zygote runs Triton's interpreter.
        memory_cap: bytes it may take besides the judge's memory.
        cache: folder of compiled kernels.
        build: only compile: Triton launches are compiled, not run, and no result is published.
        handles: hexadecimal handles of device memory by kind.
        extensions: ``folder``, ``toolchain`` and ``requests`` of CUDA extensions.
    """
    spec = subjects.task.spec
    weights = subjects.weight_region.plan()
    return {
        "language": candidate.language.value,
        "device": settings.device,
        "interpret": interpret,
        "source": candidate.source,
        "init": list(spec.init),
        "constants": {str(position): value for position, value in spec.constants.items()},
        "seeds": list(subjects.seeds),
        "threads": settings.threads,
        "walls": walls.to_json(),
        "sizes": {
            "inputs": subjects.inputs.size,
            "weights": subjects.weights.size,
            "outputs": subjects.outputs.size,
        },
        "weights": {
            "copies": subjects.copies,
            "bytes": weights["bytes"],
            "attributes": [weight.attribute for weight in spec.weights],
            "tensors": weights["tensors"],
        },
        "regions": regions(subjects),
        "handles": handles,
        "cache": cache,
        "memory_cap": memory_cap,
        "build": build,
        "extensions": extensions,
    }


def regions(subjects: Subjects) -> list[dict[str, Any]]:
    """Two regions a subject: its trials under weight copy 0, and its timed slots over all copies."""
    result: list[dict[str, Any]] = []
    for subject in subjects.subjects:
        for inputs, outputs, copies in (
            (subject.inputs.check, subject.outputs.check, 1),
            (subject.inputs.timing, subject.outputs.timing, subjects.copies),
        ):
            if inputs is None or outputs is None:
                result.append({"slots": 0})
            else:
                plans = {"inputs": inputs.plan(), "outputs": outputs.plan()}
                result.append({"slots": inputs.slots, "copies": copies, **plans})
    return result

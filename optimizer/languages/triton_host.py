"""The untrusted side of the compile check: loads a candidate behind walls and compiles its kernels. No GPU needed.

A ``RUN n`` compiles launch ``n`` of the plan. Assembler and disassembler are programs, so this process may start some;
it may write to its scratch folder only.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

from optimizer.judge import wire
from optimizer.judge.isolation.walls import WallPlan, raise_walls
from optimizer.judge.python import emulation
from optimizer.judge.python.host import SOURCE_NAME, Answer, address_space, describe_error, execute
from optimizer.languages.fenv import control_word

_WARP = 32
_TOOL_LIMIT_S = 10


def serve(channel: int, plan: Mapping[str, Any]) -> None:
    """Confine this process, greet, and answer commands until the channel closes."""
    scratch = plan["scratch"]
    emulation.answer_for(plan["capability"])
    os.environ |= {"TMPDIR": scratch, "TRITON_CACHE_DIR": scratch, "HOME": scratch}
    tempfile.tempdir = scratch
    walls = WallPlan.from_json(plan["walls"])
    raised = raise_walls(walls._replace(address_space=address_space() + plan["memory_cap"]))
    os.write(channel, wire.hello([tuple(wall) for wall in raised], [0, 0, 0], control_word()))
    while message := os.read(channel, wire.COMMAND.size):
        action, number, _second, _third = wire.COMMAND.unpack(message)
        answer = _carry_out(plan, action, number)
        os.write(channel, wire.done(answer.status, control_word(), answer.text))


def _carry_out(plan: Mapping[str, Any], action: int, number: int) -> Answer:
    try:
        if action == wire.LOAD:
            execute(plan["source"])
            return Answer(wire.OK, "{}")
        return Answer(wire.OK, json.dumps(compile_launch(plan["launches"][number], plan["capability"])))
    except BaseException as error:  # noqa: BLE001  the border to untrusted code
        return Answer(wire.RAISED, json.dumps(_describe(error)))


def compile_launch(launch: Mapping[str, Any], capability: int) -> dict[str, Any]:
    """Compile one launch of a loaded candidate: ``shared`` bytes and ``registers``, or ``missing`` if its kernel is not
    there. Raises what Triton raises."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = _find(launch["kernel"], launch["line"])
    if kernel is None:
        return {"missing": True}
    constants: dict[Any, Any] = {name: _constant(value) for name, value in launch["constants"].items()}
    constants |= {tuple(path): _constant(value) for path, value in launch.get("nested", ())}
    source = ASTSource(kernel, {name: _type(kind) for name, kind in launch["signature"].items()}, constants)
    compiled = triton.compile(
        source, target=GPUTarget("cuda", capability, _WARP), options=dict(launch["options"])
    )
    return {"shared": int(compiled.metadata.shared), "registers": _registers(compiled.asm.get("cubin"))}


def _find(name: str, line: int) -> Any:
    """The kernel of that name whose definition starts on that line, wherever the candidate keeps it."""
    from triton.runtime.jit import JITFunction

    for found in gc.get_objects():
        if isinstance(found, JITFunction):
            code = found.fn.__code__
            if (found.fn.__name__, code.co_filename, code.co_firstlineno) == (name, SOURCE_NAME, line):
                return found
    return None


def _type(kind: Any) -> Any:
    """A type, or a tuple of types for a tuple; JSON has lists only."""
    return tuple(map(_type, kind)) if isinstance(kind, list) else kind


def _constant(value: Any) -> Any:
    import triton.language as tl

    return tl.dtype(value["dtype"]) if isinstance(value, dict) else value


def _registers(cubin: bytes | None) -> int | None:
    """Registers a thread, as the disassembler says; None without it."""
    import triton

    if not cubin:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            tool = triton.knobs.nvidia.cuobjdump.path
            command = [tool, "--dump-resource-usage", file.name]
            shown = subprocess.run(
                command, capture_output=True, text=True, timeout=_TOOL_LIMIT_S, check=False
            )
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            return None
    found = re.search(r"REG:(\d+)", shown.stdout)
    return int(found[1]) if found else None


def _describe(error: BaseException) -> dict[str, Any]:
    """As for a run, but with the compiler's own words and line where it has them."""
    described = describe_error(error)
    cause: BaseException | None = error
    while cause is not None:
        if message := getattr(cause, "error_message", None):
            described["error"] = f"{type(cause).__name__}: {str(message).strip()[:400]}{_place(cause)}"
        cause = cause.__cause__
    return described


def _place(error: Any) -> str:
    """The line of the kernel that a compiler error is about, quoted; empty if it does not say."""
    number, source = getattr(getattr(error, "node", None), "lineno", 0), getattr(error, "src", None)
    lines = source.splitlines() if isinstance(source, str) else []
    return f" in `{lines[number - 1].strip()[:80]}`" if 0 < number <= len(lines) else ""

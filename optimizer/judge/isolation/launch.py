"""Start a program behind walls: a small isolated Python raises them, then becomes the program.

A launcher process is used instead of ``preexec_fn`` because forking a process that holds torch and its threads
is slow and unsafe.
"""

import os
import sys
from pathlib import Path

from optimizer.judge.isolation.walls import Wall, WallPlan, raise_walls, system_read_paths

_ROOT = str(Path(__file__).resolve().parents[3])
_PROBE_LIMIT_S = 20.0


def isolated_python(module: str, *arguments: str) -> list[str]:
    """Command line that runs ``module.main(arguments)`` in a Python without site packages or environment."""
    code = f"import sys; sys.path.insert(0, {_ROOT!r}); from {module} import main; main(sys.argv[1:])"
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def sandboxed_command(plan: WallPlan, command: list[str]) -> list[str]:
    """``command`` (its first part an absolute path), run behind the walls of ``plan``."""
    return isolated_python("optimizer.judge.isolation.launch", "run", plan.to_json(), *command)


def probe() -> list[Wall]:
    """Raise all walls in a child process and say which stand on this machine, plus the process group."""
    import subprocess  # not at the top: confined processes load this module, and every millisecond counts there

    plan = WallPlan(read=system_read_paths(sys.executable), write=(), syscalls="worker")
    command = isolated_python("optimizer.judge.isolation.launch", "probe", plan.to_json())
    group = Wall("process group", True, "a hung candidate is killed with all it started")
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Wall("sandbox", False, f"the probe could not run: {error}"), group]
    walls = [_parse(line) for line in answer.stdout.splitlines() if line.count("\t") == 2]
    if answer.returncode != 0 or not walls:
        return [Wall("sandbox", False, f"the probe ended with status {answer.returncode}"), group]
    return [*walls, group]


def _parse(line: str) -> Wall:
    name, state, why = line.split("\t")
    return Wall(name, state == "on", why)


def main(arguments: list[str]) -> None:
    """``run PLAN PROGRAM ...`` or ``probe PLAN``, in the process to be confined."""
    action, plan, *command = arguments
    walls = raise_walls(WallPlan.from_json(plan))
    if action == "probe":
        for wall in walls:
            os.write(1, f"{wall.name}\t{'on' if wall.on else 'off'}\t{wall.why}\n".encode())
        return
    os.execv(command[0], command)

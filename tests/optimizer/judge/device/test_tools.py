"""Tools that are small scripts, around the real standalone runner on the CPU in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from extractor.kernelbench import import_kernelbench
from optimizer.candidate import Candidate, Language
from optimizer.judge.corpus import corpus_folder
from optimizer.judge.course import Course
from optimizer.judge.device import tools
from optimizer.judge.device.handout import Handout, write_handout
from optimizer.judge.device.tools import Toolbox, find_tool, installation, library_folders
from optimizer.judge.isolation.supervise import TIMED_OUT, split_walls, supervised_command
from optimizer.judge.isolation.walls import WallPlan, system_read_paths
from optimizer.judge.numeric_state import written_down
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.subjects import Subjects
from optimizer.judge.verdict import Outcome
from optimizer.machine import machine_facts

# Drops the tool's own options: the program begins with an absolute path to Python.
_PROGRAM = 'while case "$1" in */python*) false;; *) true;; esac; do shift; done'
_SUMMARY = 'echo "========= ERROR SUMMARY: 0 errors"'
_HONEST = "triton/honest/silu_gate_flat.py"
_SETTINGS = JudgeSettings(trials=2, seed=3, timing=False)


def _opened(folder: Path, task: str) -> Iterator[Subjects]:
    torch.set_num_threads(1)
    imported = import_kernelbench(corpus_folder() / "tasks" / f"{task}.py", folder / "task")
    with written_down(1):
        subjects = Subjects(imported, _SETTINGS, machine_facts())
    yield subjects
    subjects.close()


@pytest.fixture(scope="module")
def silu_gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subjects]:
    yield from _opened(tmp_path_factory.mktemp("silu_gate"), "silu_gate")


@pytest.fixture(scope="module")
def odd_inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subjects]:
    yield from _opened(tmp_path_factory.mktemp("strided_add"), "strided_add")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def ordinary_user(monkeypatch: pytest.MonkeyPatch):
    """The tests may run as root."""
    monkeypatch.setattr(tools, "can_change_the_system", lambda: False)


@pytest.fixture
def toolbox(silu_gate: Subjects, tmp_path: Path) -> Callable[..., Toolbox]:
    """A box with one tool, made of a few lines of shell."""

    def make(*lines: str) -> Toolbox:
        tool = tmp_path / "tool"
        tool.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
        tool.chmod(0o755)
        return Toolbox(silu_gate, _SETTINGS, lambda _: None, lambda _: str(tool))

    return make


def candidate(name: str = _HONEST) -> Candidate:
    return Candidate(Language.TRITON, (corpus_folder() / name).read_text(encoding="utf-8"))


def test_handed_out_tensors_keep_values_strides_and_shared_storage(odd_inputs: Subjects, tmp_path: Path):
    handout = Handout(write_handout(tmp_path, odd_inputs, _SETTINGS, candidate(), None))
    for number, subject in enumerate(odd_inputs.subjects):
        expected = odd_inputs.inputs.slot(subject.inputs.check, 0)
        found = handout.inputs(number)
        for one, other in zip(found, expected, strict=True):
            assert one.stride() == other.stride()
            torch.testing.assert_close(one, other, rtol=0, atol=0)
            last = one.storage_offset() + sum(
                (size - 1) * stride for size, stride in zip(one.shape, one.stride(), strict=True)
            )
            assert one.untyped_storage().nbytes() >= (last + 1) * one.element_size()


def test_every_workload_is_called_and_a_clean_report_is_a_wall(toolbox: Callable[..., Toolbox]):
    sanitized = toolbox(_PROGRAM, '"$@" && ' + _SUMMARY).sanitize(candidate())
    assert sanitized.finding == ""
    assert sanitized.walls[0].on, sanitized.walls[0].why
    assert sanitized.walls[0].why == "ran memcheck, racecheck"
    assert {wall.name for wall in sanitized.walls[1:]} >= {
        "landlock (compute-sanitizer)",
        "seccomp (compute-sanitizer)",
    }


def test_an_error_is_a_finding_and_ends_it(toolbox: Callable[..., Toolbox]):
    lines = ("Invalid __global__ write of size 4 bytes", "    at silu_gate_kernel+0xc0")
    report = [f'echo "========= {line}"' for line in lines]
    sanitized = toolbox("echo kernelgraft-workload odd", *report, "exit 86").sanitize(candidate())
    assert sanitized.finding == (
        "compute-sanitizer: Invalid __global__ write of size 4 bytes in kernel silu_gate_kernel (workload odd)"
    )
    assert sanitized.walls[0].why == "ran memcheck"


def test_a_tool_that_cannot_run_says_why(toolbox: Callable[..., Toolbox]):
    sanitized = toolbox('echo "========= Error: Device not supported."; exit 1').sanitize(candidate())
    assert not sanitized.finding
    assert (sanitized.walls[0].on, sanitized.walls[0].why) == (False, "Device not supported.")


def test_no_tool_is_run_for_a_user_who_could_change_the_system(
    toolbox: Callable[..., Toolbox], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tools, "can_change_the_system", lambda: True)
    box = toolbox("echo never; exit 0")
    (wall,) = box.sanitize(candidate()).walls
    assert not wall.on
    assert "ordinary user" in wall.why
    assert "ordinary user" in box.count(candidate())


def test_a_missing_tool_says_so(silu_gate: Subjects):
    box = Toolbox(silu_gate, _SETTINGS, lambda _: None, lambda _: None)
    (wall,) = box.sanitize(candidate()).walls
    assert not wall.on
    assert "not found" in wall.why
    assert "not found" in box.count(candidate())


def test_an_exception_under_the_tool_is_no_clean_report(toolbox: Callable[..., Toolbox]):
    raising = Candidate(Language.TRITON, "raise TypeError('not today')\n")
    sanitized = toolbox(_PROGRAM, '"$@"; code=$?; ' + _SUMMARY, "exit $code").sanitize(raising)
    assert not sanitized.walls[0].on
    assert "TypeError: not today" in sanitized.walls[0].why


def test_counted_kernels_become_text(toolbox: Callable[..., Toolbox]):
    metrics = ",".join(f'"{name}"' for name in tools.counters.METRICS)
    table = (f'"ID","Kernel Name",{metrics}', '"","","ns","%","%","%"', '"0","k","2000","80","10","50"')
    text = toolbox(_PROGRAM, '"$@" || exit', *(f"echo '{line}'" for line in table)).count(candidate())
    assert text.splitlines()[1] == "  2 us  x1  DRAM 80%  SM 10%  occupancy 50%  k"


def error(tool: Callable[..., Toolbox], **settings: bool) -> Toolbox:
    """A box whose tool always finds the same error."""
    box = tool(
        'echo "========= Invalid __global__ read of size 4 bytes"',
        'echo "=========     at k+0x10"',
        "exit 86",
    )
    box._settings = replace(_SETTINGS, **settings)
    return box


def test_a_finding_makes_a_correct_candidate_wrong(toolbox: Callable[..., Toolbox]):
    course = Course(profile="a profile")
    correct = course.verdict(Outcome.CORRECT, "all checks passed", speedup=2.0)
    verdict = error(toolbox, sanitize=True).examine(candidate(), course, correct)
    assert verdict.outcome is Outcome.WRONG
    assert verdict.reason == "compute-sanitizer: Invalid __global__ read of size 4 bytes in kernel k"
    assert verdict.speedup is None
    assert "compute-sanitizer" in verdict.walls


def test_a_finding_explains_a_crash(toolbox: Callable[..., Toolbox]):
    course = Course()
    crashed = course.verdict(Outcome.CRASHED, "illegal memory access")
    verdict = error(toolbox, sanitize=True).examine(candidate(), course, crashed)
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.reason.startswith("illegal memory access; compute-sanitizer: Invalid __global__ read")


def test_tools_run_where_they_were_asked_for_and_have_something_to_say(toolbox: Callable[..., Toolbox]):
    course = Course()
    correct = course.verdict(Outcome.CORRECT, "all checks passed", speedup=2.0)
    refused = course.verdict(Outcome.HUNG, "killed after 20 s")
    assert error(toolbox).examine(candidate(), course, correct) == correct
    assert error(toolbox, sanitize=True, ncu=True).examine(candidate(), course, refused) == refused


def test_a_tool_without_an_answer_changes_no_outcome(silu_gate: Subjects):
    asked = replace(_SETTINGS, sanitize=True, ncu=True)
    box = Toolbox(silu_gate, asked, lambda _: None, lambda _: None)
    course = Course(profile="a profile")
    verdict = box.examine(candidate(), course, course.verdict(Outcome.CORRECT, "all right", speedup=2.0))
    assert (verdict.outcome, verdict.speedup, verdict.reason) == (Outcome.CORRECT, 2.0, "all right")
    assert any(wall.startswith("compute-sanitizer: not found") for wall in verdict.missing_walls)
    assert verdict.profile.startswith("a profile\nncu: not found")


def test_what_is_too_slow_is_killed_and_nothing_is_left(
    toolbox: Callable[..., Toolbox], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tools, "LIMIT_S", 0.5)
    sanitized = toolbox("setsid sleep 987 & sleep 986").sanitize(candidate())
    assert sanitized.walls[0].why == "killed after 0.5 s"
    assert not _running("sleep 98")


def test_what_a_program_leaves_running_is_ended_with_it():
    command = ["/bin/sh", "-c", "setsid sleep 985 & exit 3"]
    start = time.monotonic()
    answer = subprocess.run(
        supervised_command(_plan(), 10.0, command), capture_output=True, text=True, timeout=20
    )
    assert answer.returncode == 3
    assert time.monotonic() - start < 8.0
    assert not _running("sleep 985")


def test_the_supervisor_ends_everything_when_it_is_told_to():
    process = subprocess.Popen(
        supervised_command(_plan(), 60.0, ["/bin/sleep", "984"]), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert process.wait(10) == TIMED_OUT
    process.stdout.close()
    assert not _running("sleep 984")


def test_processes_under_a_tool_speak_to_each_other_and_to_nobody_else():
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(s.getsockname()).close(); print('spoke'); "
        "socket.create_connection(('192.0.2.1', 80), 1)"
    )
    plan = _plan()._replace(read=(*_plan().read, "/proc"))
    command = supervised_command(plan, 10.0, ["/usr/bin/env", "python3", "-I", "-S", "-c", code])
    answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    walls, output = split_walls(answer.stdout)
    if not all(wall.on for wall in walls):
        pytest.skip(f"walls are missing here: {walls}")
    assert output == "spoke\n", answer.stderr
    assert "Network is unreachable" in answer.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only a privileged user has capabilities to give up")
def test_who_reads_counters_stays_root_with_two_capabilities():
    plan = _plan()._replace(read=(*_plan().read, "/proc"), counters=True)
    command = supervised_command(plan, 10.0, ["/bin/grep", "CapBnd", "/proc/self/status"])
    answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    walls, output = split_walls(answer.stdout)
    if not walls[0].on:
        pytest.skip(f"no namespaces here: {walls[0].why}")
    kept = int(output.split()[1], 16)
    assert kept & ~(1 << 21 | 1 << 38) == 0


def test_a_flood_of_output_keeps_its_beginning_and_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(tools, "_HEAD", 10)
    monkeypatch.setattr(tools, "_TAIL", 10)
    run = tools.run_supervised(
        ["/bin/sh", "-c", "echo begins; yes | head -c 3000000; echo ends"], tmp_path, {}
    )
    assert run.output.startswith("begins")
    assert run.output.endswith("ends\n")
    assert len(run.output) == 20


def test_tools_are_found_beside_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tool = tmp_path / "bin" / "kernelgraft-tool"
    tool.parent.mkdir()
    tool.touch(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_tool("kernelgraft-tool") == str(tool)
    assert installation(str(tool)) == tmp_path.resolve()
    assert find_tool("kernelgraft-other") is None


def test_the_libraries_of_this_process_are_found_by_an_isolated_one():
    assert Path(torch.__file__).parents[1] in library_folders()


def _plan() -> WallPlan:
    return WallPlan(
        read=system_read_paths("/usr/bin/env"), write=("/dev/null",), syscalls="tool", loopback=True
    )


def _running(command: str) -> list[str]:
    """Command lines on this machine that contain ``command``."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (path := Path("/proc", entry, "cmdline")).exists():
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text.startswith(command):
                found.append(text)
    return found

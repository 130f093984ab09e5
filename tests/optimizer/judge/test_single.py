"""One file on one task: what ``kernelgraft judge`` accepts, and what it says of what it does not."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from extractor.models import NoDevice
from extractor.task import CorruptTask
from optimizer.candidate import Language
from optimizer.judge.judge import JudgeSettings
from optimizer.judge.single import (
    JudgedFile,
    NoSuchTask,
    UnreadableCandidate,
    judge_file,
    open_task,
    read_candidate,
)
from optimizer.judge.subjects import NotEnoughMemory
from optimizer.judge.verdict import Outcome
from tests.optimizer.fixtures import kernels, tasks


@pytest.mark.parametrize(
    ("name", "source", "language"),
    [
        ("kernel.cpp", "int x;", Language.CPP),
        ("kernel.py", "import triton", Language.TRITON),
        ("kernel.py", "from torch.utils.cpp_extension import load_inline", Language.CUDA),
    ],
)
def test_the_language_is_told_by_suffix_and_content(
    tmp_path: Path, name: str, source: str, language: Language
) -> None:
    (tmp_path / name).write_text(source)
    assert read_candidate(tmp_path / name).language is language


def test_a_stated_language_wins(tmp_path: Path) -> None:
    (tmp_path / "kernel.txt").write_text("int x;")
    assert read_candidate(tmp_path / "kernel.txt", Language.CPP).language is Language.CPP


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("absent.cpp", None, "No such file"),
        ("kernel.cu", b"int x;", "its suffix .cu names no language"),
        ("kernel", b"int x;", r"its suffix \(none\) names no language"),
        ("kernel.cpp", b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_an_unreadable_candidate_is_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableCandidate, match=problem):
        read_candidate(tmp_path / name)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_only_a_regular_file_is_a_candidate(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "kernel.cpp")
    with pytest.raises(UnreadableCandidate, match=r"no regular file|Is a directory"):
        read_candidate(tmp_path / "kernel.cpp")


def test_a_device_that_never_ends_is_not_read() -> None:
    with pytest.raises(UnreadableCandidate, match="no regular file"):
        read_candidate(Path("/dev/zero"), Language.CPP)


def test_a_file_larger_than_memory_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "kernel.cpp").open("wb") as file:
        file.truncate(1 << 40)  # all hole
    with pytest.raises(UnreadableCandidate, match="is over 256 KiB"):
        read_candidate(tmp_path / "kernel.cpp")


def test_a_path_of_any_bytes_can_be_told_in_json(tmp_path: Path, quick: JudgeSettings) -> None:
    task = tasks.silu_gate(tmp_path / "task")
    path = tmp_path / os.fsdecode(b"k\xff\x1b.cpp")
    path.write_text("int x;")
    judged = judge_file(task.folder, path, quick, None)
    assert JudgedFile.model_validate_json(judged.model_dump_json()) == judged
    assert judged.candidate.endswith(r"k\udcff\x1b.cpp")


def test_a_device_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    task = tasks.silu_gate(tmp_path / "task")
    (tmp_path / "kernel.py").write_text("import triton")
    with pytest.raises(NoDevice, match="no CUDA device"):
        judge_file(task.folder, tmp_path / "kernel.py", JudgeSettings(device="cuda"), None)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("workloads", 0, "inputs"), []),
        (("workloads", 0, "inputs", 0, "shape"), [3, 1, 5]),
        (("workloads", 0, "inputs", 0, "dtype"), "complex64"),
        (("workloads", 0, "inputs", 0, "stride"), [128, 128, 1 << 38]),
        (("weights", 0, "attribute"), "\0"),
        (("weights", 0, "shape"), [7, 7]),
        (("weights", 0, "shape"), [1 << 46, 1 << 46]),
        (("weights", 0, "dtype"), "float"),
    ],
)
def test_a_sidecar_that_contradicts_its_program_is_one_sentence(
    tmp_path: Path, quick: JudgeSettings, path: tuple[str | int, ...], value: object
) -> None:
    task = tasks.linear(tmp_path / "task")
    sidecar = task.folder / "task.json"
    document = json.loads(sidecar.read_text())
    inner = document
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    sidecar.write_text(json.dumps(document))
    (tmp_path / "kernel.cpp").write_text(kernels.silu())
    with pytest.raises((CorruptTask, NotEnoughMemory)) as caught:
        judge_file(task.folder, tmp_path / "kernel.cpp", quick, None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nowhere", "empty", "notes.txt"])
def test_what_is_no_task_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(NoSuchTask, match=name), open_task(tmp_path / name):
        pass


def test_a_task_folders_program_stands_for_the_folder(tmp_path: Path) -> None:
    task = tasks.silu_gate(tmp_path / "task")
    with open_task(task.folder / "task.py") as opened:
        assert opened.id == task.id
        assert [workload.id for workload in opened.spec.workloads] == [w.id for w in task.spec.workloads]


def test_a_path_that_is_no_task_is_told_by_what_it_is(tmp_path: Path) -> None:
    for name in "fedcba":
        (tmp_path / "run" / "tasks" / name).mkdir(parents=True)
        (tmp_path / "run" / "tasks" / name / "task.json").touch()
    (tmp_path / "kernel.cpp").write_text("int x;")
    for path, words in (
        ("nowhere", "does not exist"),
        ("run", r"holds 6: a, b, c, d, \.\.\.; say .*run/tasks/a$"),
        ("run/tasks", "holds 6: a, b"),
        ("kernel.cpp", "the order is TASK CANDIDATE"),
    ):
        with pytest.raises(NoSuchTask, match=words), open_task(tmp_path / path):
            pass


def test_swapped_arguments_are_told(tmp_path: Path, quick: JudgeSettings) -> None:
    (tmp_path / "kernel.cpp").write_text("int x;")
    with pytest.raises(UnreadableCandidate, match="the order is TASK CANDIDATE"):
        judge_file(tmp_path / "kernel.cpp", tmp_path, quick, None)


def test_a_task_folder_and_a_kernel_give_a_verdict(tmp_path: Path, quick: JudgeSettings) -> None:
    task = tasks.silu_gate(tmp_path / "task")
    (tmp_path / "kernel.cpp").write_text(kernels.silu())
    judged = judge_file(task.folder, tmp_path / "kernel.cpp", quick, None)
    assert judged.verdict.outcome is Outcome.CORRECT, judged.verdict.reason
    assert judged.verdict.clock == "cpu time"
    assert judged.language is Language.CPP
    assert judged.task == task.id


def test_what_is_derived_stands_beside_the_verdict(tmp_path: Path, quick: JudgeSettings) -> None:
    task = tasks.silu_gate(tmp_path / "task")
    (tmp_path / "kernel.cpp").write_text(kernels.silu())
    answer = json.loads(judge_file(task.folder, tmp_path / "kernel.cpp", quick, None).model_dump_json())
    assert (answer["unit"], answer["threads"]) == ("us", 1)
    assert answer["kernelgraft"]
    timed = [workload for workload in answer["workloads"] if workload["speedup"] is not None]
    assert [workload["workload"] for workload in timed] == ["decode-b1", "decode-b4"]
    assert all(workload["noise"] >= 0 for workload in timed)
    assert answer["winning_workloads"] == [w["workload"] for w in answer["workloads"] if w["clear_win"]]


def test_the_compiler_names_the_users_file(tmp_path: Path, quick: JudgeSettings) -> None:
    task = tasks.silu_gate(tmp_path / "task")
    (tmp_path / "mine.cpp").write_text(kernels.silu(body="nonsense;"))
    verdict = judge_file(task.folder, tmp_path / "mine.cpp", quick, None).verdict
    assert verdict.outcome is Outcome.BUILD_FAILED
    assert "mine.cpp:" in verdict.log
    assert "candidate.cpp" not in verdict.log + verdict.reason


def test_the_kernel_of_the_readme_is_right(tmp_path: Path, quick: JudgeSettings) -> None:
    readme = (Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")
    (tmp_path / "silu.cpp").write_text(readme.partition("```cpp\n")[2].partition("```")[0])
    task = tasks.silu_gate(tmp_path / "task", dtype="bfloat16")
    verdict = judge_file(task.folder, tmp_path / "silu.cpp", quick, None).verdict
    assert verdict.outcome is Outcome.CORRECT, verdict.reason

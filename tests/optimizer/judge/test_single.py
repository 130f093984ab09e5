"""One file on one task: what ``kernelgraft judge`` accepts, and what it says of what it does not."""

from pathlib import Path

import pytest

from optimizer.candidate import Language
from optimizer.judge.judge import JudgeSettings
from optimizer.judge.single import NoSuchTask, UnreadableCandidate, judge_file, open_task, read_candidate
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


@pytest.mark.parametrize("name", ["nowhere", "empty", "notes.txt"])
def test_what_is_no_task_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(NoSuchTask, match=name), open_task(tmp_path / name):
        pass


def test_a_task_folder_and_a_kernel_give_a_verdict(tmp_path: Path, quick: JudgeSettings) -> None:
    task = tasks.silu_gate(tmp_path / "task")
    (tmp_path / "kernel.cpp").write_text(kernels.silu())
    judged = judge_file(task.folder, tmp_path / "kernel.cpp", quick, None)
    assert judged.verdict.outcome is Outcome.CORRECT, judged.verdict.reason
    assert judged.verdict.clock == "cpu time"
    assert judged.language is Language.CPP
    assert judged.task == task.id

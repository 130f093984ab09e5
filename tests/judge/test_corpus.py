"""The corpus gets its stated answers; a case that does not say what it expects is refused."""

import collections
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from optimizer.candidate import Language
from optimizer.judge import selftest
from optimizer.judge.corpus import BrokenCase, Case, Kind, NoCorpus, corpus_folder, load_case, load_corpus
from optimizer.judge.leftovers import descendants, watched
from optimizer.judge.settings import JudgeSettings, Profile
from optimizer.judge.verdict import Outcome, Verdict

HEADER = "// task: silu_gate\n// kind: {kind}\n// expect: {expect}\n// reason: {reason}\n// why: a test.\n"
# Enough of every kind of answer to see the self-test work; the whole of it is the slow tests' matter.
SAMPLE = (
    "cpp/honest/softmax_online",
    "cpp/honest/linear_packed_transposed",
    "cpp/honest/nested_stats",
    "cpp/cheats/softmax_that_overflows",
    "cpp/cheats/weights_by_pointer",
    "cpp/cheats/reads_a_file",
    "cpp/cheats/null_pointer",
    "cpp/cheats/library_call",
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> JudgeSettings:
    torch.set_num_threads(1)
    return JudgeSettings(cache_dir=str(tmp_path_factory.mktemp("build cache")))


def test_there_are_enough_cases_of_each_kind() -> None:
    counts = collections.Counter((case.candidate.language, case.kind) for case in load_corpus())
    for language in Language:
        assert counts[language, Kind.HONEST] >= 25, counts
    assert sum(count for (_, kind), count in counts.items() if kind is Kind.CHEAT) >= 60


def test_no_two_cases_are_the_same_candidate() -> None:
    count = collections.Counter(case.candidate.sha for case in load_corpus())
    assert [sha for sha, times in count.items() if times > 1] == []


def test_every_task_is_used_and_imports(tmp_path: Path) -> None:
    from extractor.kernelbench import import_kernelbench

    tasks = {path.stem for path in (corpus_folder() / "tasks").glob("*.py")}
    assert tasks == {case.task for case in load_corpus()}
    for name in sorted(tasks):
        task = import_kernelbench(corpus_folder() / "tasks" / f"{name}.py", tmp_path)
        assert len(task.spec.workloads) >= 2, name
        assert task.spec.health.flags == (), name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("// kind: honest\n", "no expect, no task, no why"),
        (HEADER.format(kind="honest", expect="wrong", reason=""), "an honest case expects correct"),
        (HEADER.format(kind="cheat", expect="correct", reason="x"), "other than correct"),
        (HEADER.format(kind="cheat", expect="wrong", reason=""), "states the reason"),
        (HEADER.format(kind="cheat", expect="mistaken", reason="x"), "mistaken"),
        (HEADER.format(kind="cheat", expect="wrong", reason="("), "unterminated"),
        (HEADER.format(kind="honest", expect="correct", reason=""), "not that of its folder"),
        (
            HEADER.replace("silu_gate", "nothing").format(kind="cheat", expect="wrong", reason="x"),
            "no task nothing",
        ),
        ("// task: silu_gate\n// mood: good\n", "unknown key mood"),
    ],
)
def test_a_case_that_does_not_say_what_it_expects(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "cpp" / "cheats" / "odd.cpp"
    path.parent.mkdir(parents=True)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "silu_gate.py").touch()
    path.write_text(text)
    with pytest.raises(BrokenCase, match=problem):
        load_case(path, tmp_path)


def test_an_empty_corpus_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(NoCorpus):
        load_corpus(tmp_path)


def _case(name: str) -> Case:
    return next(case for case in load_corpus() if case.name == name)


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("cpp/honest/linear_plain", Verdict(outcome=Outcome.CORRECT, reason="correct", speedup=1.2), ""),
        (
            "cpp/honest/linear_plain",
            Verdict(outcome=Outcome.WRONG, reason="error"),
            "wrong instead of correct",
        ),
        ("cpp/cheats/odd_status", Verdict(outcome=Outcome.WRONG, reason="it returned 7"), ""),
        (
            "cpp/cheats/odd_status",
            Verdict(outcome=Outcome.CORRECT, reason="correct"),
            "correct instead of wrong",
        ),
        ("cpp/cheats/odd_status", Verdict(outcome=Outcome.WRONG, reason="NaN"), "reason does not match"),
        (
            "cpp/cheats/odd_status",
            Verdict(outcome=Outcome.WRONG, reason="returned 7", speedup=9.0),
            "speedup 9.0",
        ),
        (
            "cpp/cheats/answers_that_scale",
            Verdict(outcome=Outcome.CORRECT, reason="correct", speedup=1.2),
            "",
        ),
        (
            "cpp/cheats/answers_that_scale",
            Verdict(outcome=Outcome.CORRECT, reason="correct, 9x", speedup=9.0),
            "more than 1.5x by cheating: correct, 9x",
        ),
    ],
)
def test_an_objection_says_what_is_not_as_stated(name: str, verdict: Verdict, words: str) -> None:
    objection = _case(name).objection(verdict)
    assert (words in objection) if words else not objection


def test_a_sample_gets_its_answers_every_time(
    settings: JudgeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [case for case in load_corpus() if case.name in SAMPLE]
    monkeypatch.setattr(selftest, "load_corpus", lambda folder: chosen)
    report = selftest.run(settings, repeat=2)
    assert report.failures == ()
    assert report.left_behind == ()
    assert report.unsteady == ()
    assert report.right
    assert report.honest.passed == report.honest.total == 3
    assert report.cheats.caught == report.cheats.total == 5
    assert report.walls
    assert report.speedup_spread is not None
    assert report.evaluations_per_minute > 0


def test_what_cannot_run_here_is_skipped_with_the_cause(settings: JudgeSettings) -> None:
    report = selftest.run(settings, filter="cuda/honest")
    assert not report.right  # nothing was judged
    assert [line.split(" in ")[1][:4] for line in report.skipped] == ["cuda"]
    assert "need a GPU" in report.skipped[0]


def test_a_case_that_is_wrongly_stated_is_a_failure(
    settings: JudgeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = _case("cpp/honest/row_sum_plain")
    lie = Case(
        **honest.__dict__ | {"kind": Kind.CHEAT, "expected": frozenset({Outcome.WRONG}), "reason": "error"}
    )
    monkeypatch.setattr(selftest, "load_corpus", lambda folder: [lie])
    report = selftest.run(settings)
    assert not report.right
    assert report.cheats.caught == 0
    assert "correct instead of wrong" in report.failures[0]


def test_leftovers_are_seen() -> None:
    import tempfile

    sleeper = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=-3, stderr=-3).pid)"
    with watched() as leftovers:
        orphan = int(subprocess.run([sys.executable, "-c", sleeper], capture_output=True, check=True).stdout)
        handle, path = tempfile.mkstemp(prefix="forgotten")
    os.kill(orphan, 9)
    os.waitpid(orphan, 0)
    os.close(handle)
    found = " ".join(leftovers.found)
    assert f"process {orphan} (sleep)" in found
    assert "temporary file: forgotten" in found
    assert f"open descriptor: {handle} -> {path}" in found
    assert not Path(path).exists()
    assert orphan not in descendants()


def test_nothing_done_leaves_nothing() -> None:
    with watched() as leftovers:
        subprocess.run(["true"], check=True)
    assert leftovers.found == ()


@pytest.mark.slow
@pytest.mark.parametrize("language", ["cpp", "triton"])
def test_the_whole_corpus_on_the_cpu(language: str, settings: JudgeSettings) -> None:
    """Minutes: every case of a language, once."""
    report = selftest.run(settings, filter=f"{language}/")
    assert report.failures == ()
    assert report.left_behind == ()
    assert report.right


@pytest.mark.gpu
@pytest.mark.slow
def test_the_whole_corpus_on_the_gpu(settings: JudgeSettings) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    report = selftest.run(settings, device="cuda")
    assert report.failures == ()
    assert report.left_behind == ()
    assert report.right


def test_the_paper_profile_is_opened_for_cases_that_ask_for_it(tmp_path: Path) -> None:
    path = tmp_path / "cpp" / "honest" / "odd.cpp"
    path.parent.mkdir(parents=True)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "silu_gate.py").touch()
    path.write_text("// task: silu_gate\n// kind: honest\n// expect: correct\n// profile: paper\n// why: x\n")
    case = load_case(path, tmp_path)
    assert (case.profile, case.screening, case.devices) == (Profile.PAPER, True, ("cpu",))

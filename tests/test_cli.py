"""The command line: bad input is one sentence and an exit code, every locale and output works.

Commands run in this process where they can; those about locales, limits and signals run as a user would start them.
"""

import ctypes
import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kernelgraft
from extractor.run_folder import RunFolder, RunManifest
from tests.optimizer.fixtures import kernels, tasks

PR_CAPBSET_DROP = 24
ROOT = Path(__file__).parent.parent


def command(*words):
    return [sys.executable, "-m", "kernelgraft", *map(str, words)]


def start(*words, **options):
    """The CLI as a subprocess; returns the finished process with its output as bytes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.run(command(*words), capture_output=True, env=environment, timeout=120, **options)


def manifest(model="preset:qwen3-tiny"):
    return RunManifest(
        model=model,
        dtype="bfloat16",
        device="cpu",
        attention="eager",
        batches=(1,),
        prompt=32,
        tokens=32,
        created="2026-12-01T09:00:00+00:00",
    )


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "a run").create(manifest())


@pytest.fixture
def call(capsys):
    """Run a command here: (exit status, stdout, stderr)."""

    def invoke(*words):
        status = kernelgraft.main([str(word) for word in words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return invoke


def assert_one_sentence(err, *fragments):
    """stderr holds one line that starts with our name and is no traceback."""
    assert err.count("\n") == 1, err
    assert err.startswith("kernelgraft: ")
    for fragment in fragments:
        assert fragment in err


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["frobnicate"], ["frobnicate", "kernelgraft --help"]),
        (["extract"], ["model", "kernelgraft extract --help"]),
        (["extract", "preset:qwen3-tiny", "--speed"], ["--speed"]),
        (["extract", "preset:qwen3-tiny", "--prompt", "0"], ["--prompt", "1"]),
        (["extract", "preset:qwen3-tiny", "--batch", "two"], ["batch 'two'", "--batch 1,4"]),
        (["extract", "preset:qwen3-tiny", "--families", "Z"], ["unknown family 'Z'", "lm_head"]),
        (["optimize", "somewhere", "--budget", "4"], ["budget '4'", "4x4"]),
        (["integrate", "somewhere", "--rungs", "jax"], ["'jax'", "inductor"]),
        (["judge"], ["TASK and CANDIDATE", "--self-test"]),
        (["judge", "a", "b", "--self-test"], ["leave TASK and CANDIDATE out"]),
        (["judge", "a", "b", "--only", "cpp/"], ["--only", "for --self-test"]),
        (["judge", "a", "b", "--repeat", "2"], ["--repeat", "for --self-test"]),
        (["judge", "--self-test", "--only", "nosuch"], ["nothing matches 'nosuch'", "cpp/cheats/"]),
        (["judge", "a", "b", "--device", "tpu"], ["'tpu'", "cuda:0"]),
        (["judge", "a", "b", "--ncu"], ["--ncu", "--device cuda"]),
        (["judge", "a", "b", "--sanitize"], ["--sanitize", "--device cuda"]),
        (["judge", "a", "b", "--language", "rust"], ["'rust'", "triton"]),
        (["judge", "a", "b", "--tolerance", "lax"], ["'lax'", "paper"]),
        (["judge", "a", "b", "--limit", "inf"], ["--limit inf", "1 to 3600"]),
        (["judge", "a", "b", "--limit", "nan"], ["--limit nan", "1 to 3600"]),
        (["judge", "a", "b", "--limit", "1e300"], ["--limit", "1 to 3600"]),
        (["judge", "a", "b", "--threads", "100000"], ["--threads 100000", "cores"]),
        (["extract", "preset:qwen3-tiny", "--threads", "100000"], ["--threads 100000", "cores"]),
        (["optimize", "somewhere", "--threads", "100000"], ["--threads 100000", "cores"]),
        (["optimize-and-patch", "preset:qwen3-tiny", "--threads", "100000"], ["--threads 100000", "cores"]),
    ],
)
def test_usage_errors_exit_with_2(call, words, fragments):
    status, _, err = call(*words)
    assert status == 2
    assert_one_sentence(err, *fragments)


@pytest.mark.parametrize("stage", ["optimize", "integrate", "report"])
def test_stages_on_a_folder_without_a_run(call, tmp_path, stage):
    status, _, err = call(stage, tmp_path / "nothing here")
    assert status == 1
    assert_one_sentence(err, "no run in", "kernelgraft extract")
    assert not (tmp_path / "nothing here").exists()


def test_version_help_and_no_arguments(call):
    status, out, _ = call("--version")
    assert (status, out) == (0, f"kernelgraft {kernelgraft.__version__}\n")
    for words in ([], ["--help"]):
        status, out, _ = call(*words)
        assert status == 0
        for name in ("optimize-and-patch", "extract", "optimize", "integrate", "report", "doctor"):
            assert name in out


@pytest.mark.parametrize("stage", ["optimize", "optimize-and-patch"])
def test_no_resume_is_described_as_the_refusal_it_is(call, stage):
    status, out, _ = call(stage, "--help")
    text = " ".join(out.replace("│", " ").split())
    assert status == 0
    assert "--no-resume refuses" in text
    assert "begin a new one" not in text


def test_help_takes_less_than_a_second():
    times = []
    for _ in range(3):
        began = time.perf_counter()
        assert start("--help").returncode == 0
        times.append(time.perf_counter() - began)
    assert min(times) < 1.0


def test_public_names_are_lazy_and_unknown_ones_refused():
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", kernelgraft.__version__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kernelgraft.nothing
    assert callable(kernelgraft.patch)
    assert callable(kernelgraft.load)


@pytest.mark.parametrize(
    ("model", "folder"),
    [
        ("preset:qwen3-tiny", "runs/qwen3-tiny"),
        ("Qwen/Qwen3-0.6B", "runs/Qwen3-0.6B"),
        ("/a path/my model/", "runs/my-model"),
        ("..", "runs/run"),
        ("模型", "runs/run"),
    ],
)
def test_default_run_folder(model, folder):
    assert kernelgraft.default_run_folder(model) == Path(folder)


def test_report_of_an_unfinished_run(call, run):
    status, out, err = call("report", run.path)
    assert (status, err) == (0, "")
    assert "Still missing: no task has been extracted; run `kernelgraft extract`" in out
    assert json.loads(run.report_path.read_text(encoding="utf-8"))["complete"] is False


def test_judge_prints_a_verdict_and_exits_by_it(call, tmp_path):
    task = tasks.silu_gate(tmp_path / "task")
    (tmp_path / "kernel.cpp").write_text(kernels.silu())
    (tmp_path / "zeros.cpp").write_text(kernels.silu(body="for (int64_t i = 0; i < n; ++i) o[i] = 0;"))
    status, out, _ = call("judge", task.folder, tmp_path / "kernel.cpp", "--no-timing")
    assert status == 0
    assert "correct: all checks passed" in out
    _, out, _ = call("judge", task.folder, tmp_path / "kernel.cpp", "--no-timing", "--profile")
    assert "no profile: it is made of timed calls" in out
    status, out, _ = call("judge", task.folder, tmp_path / "zeros.cpp", "--json")
    assert status == 1
    verdict = json.loads(out)["verdict"]
    assert verdict["outcome"] == "wrong"
    assert "times eager's own" in verdict["reason"]
    assert verdict["walls"]


def test_judge_names_what_is_no_task(call, tmp_path):
    status, _, err = call("judge", tmp_path / "nothing", tmp_path / "kernel.cpp")
    assert status == 1
    assert_one_sentence(err, "kernel.cpp", "No such file")


def test_corrupt_manifest(call, run):
    run.manifest_path.write_text("{", encoding="utf-8")
    status, _, err = call("report", run.path)
    assert status == 1
    assert_one_sentence(err, "run.json", "damaged")


def test_corrupt_task_folder(call, run):
    folder = run.tasks_dir / "ffn_down-0123456789"
    folder.mkdir()
    (folder / "task.json").write_bytes(b"\xff\x00 not json")
    for stage in ("optimize", "report"):
        status, _, err = call(stage, run.path)
        assert status == 1
        assert_one_sentence(err, "ffn_down-0123456789", "task.json", "kernelgraft extract")


def test_corrupt_run_store(call, run):
    run.store_path.write_bytes(b"this is no database" * 100)
    status, _, err = call("report", run.path)
    assert status == 1
    assert_one_sentence(err, "run.sqlite", "nothing was changed")
    assert run.store_path.read_bytes().startswith(b"this is no database")


def test_two_runs_on_one_folder(call, run):
    with run.lock():
        status, _, err = call("report", run.path)
    assert status == 1
    assert_one_sentence(err, "in use by process", str(os.getpid()))


def test_a_file_where_the_run_should_be(call, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    status, _, err = call("extract", "preset:qwen3-tiny", "--out", tmp_path / "file" / "run")
    assert status == 1
    assert_one_sentence(err, "a file is in the way", "--out")


def obey_permissions():
    """Runs in the child: take from root what lets it write anywhere (CAP_DAC_OVERRIDE, _READ_SEARCH, FOWNER)."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2, 3):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "capability cannot be dropped")


def test_read_only_folder(run):
    run.path.chmod(0o555)
    options = {"preexec_fn": obey_permissions} if os.geteuid() == 0 else {}
    try:
        answers = [
            start("report", run.path, **options),
            start("extract", "preset:qwen3-tiny", "--out", run.path / "inner", **options),
        ]
    except subprocess.SubprocessError:
        pytest.skip("root may write anywhere here, and its capabilities cannot be dropped")
    finally:
        run.path.chmod(0o755)
    for answer in answers:
        assert answer.returncode == 1
        assert_one_sentence(answer.stderr.decode(), "read-only for you", "--out")


def test_unreadable_folder_is_one_sentence(call, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "/somewhere")

    monkeypatch.setattr(kernelgraft, "app", refuse)
    status, _, err = call("report", "/somewhere")
    assert status == 1
    assert_one_sentence(err, "cannot use /somewhere: Permission denied")


def test_full_disk(run):
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    answer = start("report", run.path, preexec_fn=small_files)
    assert answer.returncode == 1
    assert_one_sentence(answer.stderr.decode(), "no space left", "--out")
    assert not run.page_path.exists()
    assert not [path for path in run.path.iterdir() if path.name.endswith(".html")]


ASCII_LOCALES = [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "xterm", "FORCE_COLOR": "1"},
    {"PYTHONIOENCODING": "latin-1"},
]


@pytest.mark.parametrize("locale", ASCII_LOCALES)
def test_locales_without_utf8(tmp_path, locale):
    run = RunFolder(tmp_path / "a run").create(manifest(model="模型/é→×"))
    for words in (
        ["--help"],
        ["report", run.path],
        ["report", tmp_path / "none"],
        ["extract", "preset:模型"],
    ):
        answer = start(*words, env=locale, cwd=tmp_path)
        assert b"Traceback" not in answer.stderr
        assert answer.returncode in (0, 1, 2)
        if "PYTHONIOENCODING" not in locale:
            assert (answer.stdout + answer.stderr).isascii()
    assert "模型" in run.page_path.read_text(encoding="utf-8")


def test_output_into_a_closed_pipe():
    process = subprocess.Popen(
        command("--help"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupts_are_one_sentence(capsys, monkeypatch, number, status):
    def stop(*_, **__):
        os.kill(os.getpid(), number)
        time.sleep(5)

    monkeypatch.setattr(kernelgraft, "app", stop)
    assert kernelgraft.main(["optimize", "a run"]) == status
    assert_one_sentence(capsys.readouterr().err, "stopped", "kernelgraft optimize 'a run'")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_interrupted_judge_promises_nothing(capsys, monkeypatch):
    monkeypatch.setattr(kernelgraft, "app", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
    assert kernelgraft.main(["judge", "a task", "k.cpp"]) == 130
    err = capsys.readouterr().err
    assert_one_sentence(err, "without an answer", "kernelgraft judge 'a task' k.cpp")
    assert "kept" not in err


def test_doctor_as_json(call):
    status, out, _ = call("doctor", "--json")
    findings = json.loads(out)["findings"]
    assert status == int(any(finding["level"] == "bad" for finding in findings))
    assert {"python", "torch", "compiler"} <= {finding["topic"] for finding in findings}

"""The main job from the shell, on a tiny preset: whole, twice, interrupted at every stage, and without a compiler.

The tiny model's numbers mean nothing; that every stage meets the next one on disk does.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from extractor.run_folder import RunFolder
from integrator.report import write_report
from integrator.report.schema import Report
from optimizer.machine import find_compiler

ROOT = Path(__file__).parent.parent
LIMIT_S = 240
SMALL = (
    *("--budget", "1x2", "--families", "A,F,I"),
    *("--rungs", "eager", "--rounds", "2", "--tokens", "8", "--prompt", "8"),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler"),
]


def kernelgraft(*words, **options):
    """A started command; its output is text."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "kernelgraft", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment,
        **options,
    )


def finish(process):
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def interrupt_at(process, marker, number=signal.SIGINT):
    """Send a signal as soon as a line of stdout holds the marker; returns (status, stdout, stderr)."""
    seen = []

    def read():
        for line in process.stdout:
            seen.append(line)
            if marker in line:
                process.send_signal(number)

    reader = threading.Thread(target=read)
    reader.start()
    err = process.stderr.read()
    status = process.wait(timeout=LIMIT_S)
    reader.join()
    process.stdout.close()
    process.stderr.close()
    return status, "".join(seen), err


def load(folder):
    return Report.model_validate_json(RunFolder(folder).report_path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run in a path with spaces: (folder, stdout)."""
    folder = tmp_path_factory.mktemp("a path with spaces") / "tiny run"
    status, out, err = finish(kernelgraft("optimize-and-patch", "preset:qwen3-tiny", "--out", folder, *SMALL))
    assert status == 0, err
    return folder, out


def test_every_table_and_the_headline_are_printed(finished):
    folder, out = finished
    for words in ("Tasks in", "Census: ", "Search: ", "Ledger, batch 1", "Stock rungs, batch 1"):
        assert words in out
    assert "next: kernelgraft" not in out
    report = load(folder)
    assert report.headline[0].sentence() in out
    assert out.count("x the best stock rung measured") == 1


def test_every_file_is_there_and_whole(finished):
    folder, _ = finished
    run, report = RunFolder(folder), load(folder)
    assert report.complete, report.missing
    for path in (
        run.census_path,
        run.grafts_path,
        run.ledger_path,
        run.page_path,
        run.figure_path,
        run.store_path,
    ):
        assert path.stat().st_size > 0
    assert report.headline[0].batch == 1
    assert report.headline[0].ci_low <= report.headline[0].speedup <= report.headline[0].ci_high
    assert [entry.stage for entry in report.stages] == ["extract", "optimize", "integrate"]
    assert report.peak_memory_bytes > 0
    assert {"cpu", "instructions"} <= report.machine.keys()
    assert report.tasks
    assert all(task.judged for task in report.tasks if task.best_speedup)


def test_the_same_command_again_measures_nothing_twice(finished):
    folder, _ = finished
    before = (folder / "run.json").read_bytes()
    status, out, err = finish(kernelgraft("optimize-and-patch", "preset:qwen3-tiny", "--out", folder, *SMALL))
    assert status == 0, err
    assert "are kept" in out
    assert "nothing was judged again" in out
    assert (folder / "run.json").read_bytes() == before


def test_other_settings_on_the_same_folder_are_refused(finished):
    folder, _ = finished
    status, _, err = finish(
        kernelgraft("optimize-and-patch", "preset:qwen3-tiny", "--out", folder, "--batch", "2")
    )
    assert status == 1
    assert err.count("\n") == 1
    assert "batches" in err
    assert "--out" in err


def test_stages_run_alone_on_what_is_there(finished):
    folder, _ = finished
    status, out, err = finish(kernelgraft("optimize", folder, "--budget", "1x1", "--families", "I"))
    assert status == 0, err
    assert "optimize: " in out


@pytest.mark.parametrize(
    ("marker", "number", "status"),
    [
        ("capture: started", signal.SIGINT, 130),
        ("optimize: started", signal.SIGINT, 130),
        ("Search: ", signal.SIGINT, 130),  # integrate is next
    ],
)
def test_stopping_at_any_stage_is_one_sentence_and_loses_nothing(tmp_path, marker, number, status):
    words = ("optimize-and-patch", "preset:qwen3-tiny", "--out", tmp_path / "a run", *SMALL)
    found, out, err = interrupt_at(kernelgraft(*words), marker, number)
    assert marker in out
    assert found == status, err
    assert err.count("\n") == 1, err
    assert "the same command continues: kernelgraft optimize-and-patch" in err
    if marker != "capture: started":
        assert "integrate" in " ".join(write_report(RunFolder(tmp_path / "a run")).missing)


def test_no_compiler_is_one_sentence(finished, tmp_path):
    folder, _ = finished
    words = ("optimize", folder, "--budget", "2x2", "--families", "I")
    status, _, err = finish(kernelgraft(*words, env={"PATH": str(tmp_path), "CXX": ""}))
    assert status == 1
    assert err.count("\n") == 1, err
    assert "no C++ compiler" in err
    assert "install" in err


def test_json_on_disk_names_its_schema_version(finished):
    folder, _ = finished
    for name in ("run.json", "census.json", "grafts.json", "ledger.json", "stages.json", "report.json"):
        assert json.loads((folder / name).read_text(encoding="utf-8"))["schema_version"] >= 1

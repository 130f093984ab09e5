"""Run folders: one process at a time, atomic files, and one sentence for a disk that will not take them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from extractor import run_folder
from extractor.run_folder import (
    CorruptRun,
    RunBusy,
    RunFolder,
    RunManifest,
    RunMismatch,
    RunMissing,
    RunUnwritable,
    write_json,
    write_text,
)


def manifest(**changes: object) -> RunManifest:
    values: dict[str, object] = {
        "model": "preset:qwen3-tiny",
        "dtype": "bfloat16",
        "device": "cpu",
        "attention": "eager",
        "batches": (1, 4),
        "prompt": 32,
        "tokens": 32,
        "created": "2026-01-01T00:00:00Z",
    }
    return RunManifest(**(values | changes))  # type: ignore[arg-type]


def test_create_and_open(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a run, mit Ümläut").create(manifest())
    assert run.tasks_dir.is_dir()
    assert RunFolder(run.path).open().manifest == manifest()


def test_creating_again_keeps_what_is_there(a_run: RunFolder) -> None:
    a_run.create(manifest())
    a_run.create(manifest(created="2027-01-01T00:00:00Z"))
    assert a_run.manifest.created.startswith("2026")


def test_other_settings_need_another_folder(a_run: RunFolder) -> None:
    a_run.create(manifest())
    with pytest.raises(RunMismatch, match="dtype = bfloat16, not float32"):
        a_run.create(manifest(dtype="float32"))


def test_no_run_there(a_run: RunFolder) -> None:
    with pytest.raises(RunMissing, match="kernelgraft extract"):
        a_run.open()


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": 1}', "\udcff"])
def test_damaged_manifest(a_run: RunFolder, text: str) -> None:
    a_run.create(manifest())
    a_run.manifest_path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CorruptRun, match=r"run\.json"):
        a_run.open()


def test_manifest_of_another_version(a_run: RunFolder) -> None:
    a_run.create(manifest())
    data = json.loads(a_run.manifest_path.read_text(encoding="utf-8"))
    a_run.manifest_path.write_text(json.dumps(data | {"schema_version": 9}), encoding="utf-8")
    with pytest.raises(CorruptRun, match="schema version 9"):
        a_run.open()


HOLDER = """
import pathlib, sys
from extractor.run_folder import RunFolder
with RunFolder(pathlib.Path(sys.argv[1])).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_one_process_at_a_time(a_run: RunFolder) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(a_run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(RunBusy, match=f"process {holder.pid}"), a_run.lock():
            pytest.fail("the lock was given twice")
        holder.kill()  # the system releases a killed process's lock
        holder.wait(20)
        with a_run.lock():
            pass


def test_lock_can_be_taken_again(a_run: RunFolder) -> None:
    with a_run.lock():
        pass
    with a_run.lock():
        assert (a_run.path / ".lock").read_text(encoding="utf-8") == str(os.getpid())


def test_a_file_in_the_way(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("", encoding="utf-8")
    with pytest.raises(RunUnwritable, match="in the way"):
        RunFolder(blocker / "run").create(manifest())


@pytest.mark.parametrize(
    ("number", "sentence"),
    [(errno.ENOSPC, "no space left"), (errno.EROFS, "read-only"), (errno.EACCES, "read-only")],
)
def test_a_disk_that_refuses(
    a_run: RunFolder, monkeypatch: pytest.MonkeyPatch, number: int, sentence: str
) -> None:
    a_run.create(manifest())

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(run_folder.os, "fsync", refuse)
    with pytest.raises(RunUnwritable, match=sentence):
        write_json(a_run.manifest_path, manifest(prompt=64))
    monkeypatch.undo()
    assert a_run.manifest.prompt == 32  # the old file is unharmed
    assert sorted(path.name for path in a_run.path.iterdir()) == ["run.json", "tasks"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunUnwritable, match="read-only"):
        RunFolder(tmp_path / "run").create(manifest())
    tmp_path.chmod(0o700)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_for_real(tmp_path: Path) -> None:
    """/dev/full refuses every write as a full disk does; the temporary file is made to be it."""
    import tempfile

    def full(*_: object, **__: object):
        handle = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115
        return tempfile._TemporaryFileWrapper(handle, str(tmp_path / "gone"), delete=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder.tempfile, "NamedTemporaryFile", full)
        with pytest.raises(RunUnwritable, match="no space left"):
            write_text(tmp_path / "x.json", "x" * 100_000)


def test_text_is_utf8_whatever_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    write_text(tmp_path / "t.txt", "größer → 1.10×")
    assert (tmp_path / "t.txt").read_bytes().decode("utf-8") == "größer → 1.10×"

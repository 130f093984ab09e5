"""What the doctor says, and when it says that the main job cannot run."""

import io
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from integrator import doctor
from integrator.doctor import Finding, Findings, Level, examine, print_findings, within
from optimizer import machine


def by_topic(findings):
    return {finding.topic: finding for finding in findings.findings}


@pytest.fixture
def fresh_machine():
    machine.machine_facts.cache_clear()
    yield
    machine.machine_facts.cache_clear()


def test_examine_covers_what_a_user_must_know():
    found = by_topic(examine())
    for topic in (
        "python",
        "torch",
        "transformers",
        "processor",
        "instructions",
        "compiler",
        "gpu",
        "memory",
        "disk",
    ):
        assert topic in found
    assert any(topic.startswith("wall: ") for topic in found)
    assert any(topic.startswith("extra: ") for topic in found)
    assert all(finding.remedy for finding in found.values() if finding.level is not Level.OK)


def test_a_missing_compiler_is_bad_and_says_what_to_install(monkeypatch, tmp_path, fresh_machine):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    findings = examine()
    compiler = by_topic(findings)["compiler"]
    assert compiler.level is Level.BAD
    assert "install" in compiler.remedy
    assert not findings.main_job


def test_a_missing_library_is_bad(monkeypatch):
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "transformers" else real(name))
    found = by_topic(examine())["transformers"]
    assert found.level is Level.BAD
    assert found.remedy.startswith("pip install 'transformers>=")


@pytest.mark.parametrize(
    ("version", "level"), [("5.16.1", Level.BAD), ("5.20.0", Level.OK), ("6.1", Level.NOTE)]
)
def test_versions_are_judged_by_what_was_tested(monkeypatch, version, level):
    monkeypatch.setattr(doctor, "_version", lambda name: version)
    assert doctor._library("transformers").level is level


@pytest.mark.parametrize(
    ("version", "inside"), [("5.17.0", True), ("5.16.9", False), ("5.99", False), ("5.18.1.dev0", True)]
)
def test_within(version, inside):
    assert within(version, "5.17", "5.18") is inside


def test_json_reads_back():
    findings = Findings(findings=(Finding(topic="gpu", level=Level.NOTE, found="none", remedy="buy one"),))
    assert json.loads(findings.model_dump_json())["schema_version"] == doctor.SCHEMA_VERSION
    assert Findings.model_validate_json(findings.model_dump_json()) == findings


def test_what_torch_compile_needs_is_looked_at(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: str(tmp_path))
    (missing,) = doctor._inductor()
    assert missing.level is Level.NOTE
    assert "python3-dev" in missing.remedy
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(
        doctor.util, "find_spec", lambda name: SimpleNamespace(origin="/a b/torch/__init__.py")
    )
    (spaced,) = doctor._inductor()
    assert spaced.level is Level.NOTE
    assert "path with a space" in spaced.found


def test_print_ends_with_the_verdict():
    for level, words in ((Level.NOTE, "can optimize"), (Level.BAD, "cannot do its main job")):
        screen = Console(file=io.StringIO(), width=100)
        print_findings(screen, Findings(findings=(Finding(topic="x", level=level, found="y", remedy="z"),)))
        assert words in screen.file.getvalue()


def test_versions_agree_with_the_package_metadata():
    """pyproject.toml and the doctor must not drift apart."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = project["project"]["dependencies"]
    for name, oldest in doctor.OLDEST.items():
        assert any(line.startswith(f"{name}>={oldest}") for line in requirements)
    assert "transformers>=5.17,<5.25" in requirements
    assert doctor.TESTED["transformers"] == ("5.17", "5.24")


def test_what_the_judge_needs_on_a_gpu_is_named(monkeypatch, tmp_path):
    for variable in ("CUDA_HOME", "CUDA_PATH", "PATH"):
        monkeypatch.setenv(variable, str(tmp_path))
    found = {finding.topic: finding for finding in doctor._gpu_tools()}
    assert list(found) == ["nvcc", "compute-sanitizer", "ncu"]
    if found["nvcc"].level is Level.NOTE:  # unless the toolkit lies in its usual place
        assert "install the CUDA toolkit" in found["nvcc"].remedy
        assert "--sanitize" in found["compute-sanitizer"].remedy
    for name in ("nvcc", "ncu"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    found = {finding.topic: finding for finding in doctor._gpu_tools()}
    assert found["nvcc"].found == str(tmp_path / "bin" / "nvcc")
    assert found["ncu"].level is Level.OK

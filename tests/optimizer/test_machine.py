"""Facts of this machine, and of machines made up for the test."""

from dataclasses import replace
from pathlib import Path

import pytest

from optimizer.machine import NoCompiler, find_compiler, machine_facts


def test_facts_are_complete_and_the_key_is_stable() -> None:
    facts = machine_facts()
    assert facts.isa[-1] == "portable"
    assert facts.l3_bytes > facts.l2_bytes > 0
    assert facts.key == replace(facts).key
    assert facts.isa[0] in facts.key
    assert replace(facts, cores=facts.cores + 1).key != facts.key
    assert facts.cpu in facts.describe()


def test_bandwidth_is_that_of_memory_not_of_a_cache() -> None:
    assert 5e8 < machine_facts().measure_memory_bandwidth() < 1e12


def test_no_compiler_says_what_to_install() -> None:
    with pytest.raises(NoCompiler, match=r"apt install g\+\+"):
        replace(machine_facts(), compiler=None).require_compiler()


def test_cxx_decides_and_a_broken_one_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "my c++"
    fake.write_text("#!/bin/sh\necho 'clang version 99.0'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", f"'{fake}' -m64")
    found = find_compiler()
    assert found is not None
    assert (found.path, found.kind, found.version) == (str(fake), "clang", "clang version 99.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "/no/such/compiler")
    assert find_compiler() is None

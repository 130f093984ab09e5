"""Memory of a process and its children, added up at one time."""

import os
import subprocess
import sys

import pytest

from integrator.report.memory import MemoryWatch, _still_the_parent, resident_bytes

BIG = 64 << 20


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_a_childs_memory_counts():
    code = f"x = bytearray(b'1' * {BIG}); print('ready', flush=True); input()"
    before = resident_bytes(os.getpid())
    with (
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child,
        MemoryWatch() as watch,
    ):
        assert child.stdout.readline() == b"ready\n"
        during = resident_bytes(os.getpid())
        child.communicate(b"\n")
    assert during - before > 0.9 * BIG
    assert watch.peak_bytes > 0


def test_an_unknown_process_has_none():
    assert resident_bytes(2**22 + 1) == 0


def test_a_child_in_its_parents_memory_is_not_counted_twice():
    parent = {"RssAnon": 5, "RssFile": 3, "VmSize": 9}
    assert _still_the_parent(dict(parent), parent)
    assert not _still_the_parent({**parent, "VmSize": 8}, parent)

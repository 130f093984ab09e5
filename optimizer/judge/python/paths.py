"""What a Python worker may read."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from optimizer.judge.isolation.walls import system_read_paths

_PACKAGES = ("extractor", "optimizer")


def python_read_paths() -> tuple[str, ...]:
    """The system's libraries, this Python's installation and packages, and the judge's own code. No home, no task."""
    root = Path(__file__).resolve().parents[3]
    installed = {sys.prefix, sys.base_prefix, *(sysconfig.get_path(name) for name in ("purelib", "platlib"))}
    own = [str(root / package) for package in _PACKAGES]
    return (*system_read_paths(sys.executable), *sorted(installed - {"/"}), *own)

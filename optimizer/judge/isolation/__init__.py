"""Isolation of untrusted code: Landlock, seccomp, namespaces, limits. Each wall is probed and reported."""

from optimizer.judge.isolation.launch import probe, sandboxed_command
from optimizer.judge.isolation.walls import (
    Wall,
    WallPlan,
    raise_last_wall,
    raise_outer_walls,
    raise_walls,
    system_read_paths,
)

__all__ = [
    "Wall",
    "WallPlan",
    "probe",
    "raise_last_wall",
    "raise_outer_walls",
    "raise_walls",
    "sandboxed_command",
    "system_read_paths",
]

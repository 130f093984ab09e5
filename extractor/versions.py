"""Which versions made a run: recorded in every file whose numbers depend on them."""

from __future__ import annotations

import platform
from importlib import metadata

CHECKOUT = "source checkout"  # kernelgraft run from its folder, not installed


def version_of(distribution: str) -> str:
    """The installed version of a distribution; ``source checkout`` for an uninstalled kernelgraft, else ``none``."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return CHECKOUT if distribution == "kernelgraft" else "none"


def versions() -> dict[str, str]:
    """Python, torch, transformers and kernelgraft."""
    names = ("kernelgraft", "torch", "transformers")
    return {"python": platform.python_version()} | {name: version_of(name) for name in names}

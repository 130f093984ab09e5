"""The pipeline's own words."""

import io
from pathlib import Path

from rich.console import Console

from integrator.pipeline import Pipeline


def test_the_next_command_can_be_pasted() -> None:
    printed = io.StringIO()
    Pipeline(folder=Path("runs/a b"), console=Console(file=printed, width=40)).suggest("optimize")
    assert printed.getvalue() == "next: kernelgraft optimize 'runs/a b'\n"

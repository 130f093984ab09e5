import os
from pathlib import Path
from typing import Any

import pytest

from optimizer.judge.device import builds
from optimizer.judge.device.builds import BuildFailed, Workshop
from optimizer.judge.remote import CandidateFault
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.verdict import Outcome


def workshop(folder: Path) -> Workshop:
    nothing: Any = None
    return Workshop(nothing, nothing, JudgeSettings(cache_dir=str(folder)), nothing, None)


def test_sweeping_keeps_what_is_pointed_to_and_what_is_being_built(tmp_path: Path):
    home = tmp_path / "triton"
    for name in ("kernels-used", "kernels-abandoned", "kernels-young"):
        (home / name).mkdir(parents=True)
    (home / "key.done").write_text("kernels-used", encoding="utf-8")
    for name in ("kernels-used", "kernels-abandoned"):
        os.utime(home / name, (0, 0))
    workshop(tmp_path)
    assert sorted(path.name for path in home.iterdir()) == ["kernels-used", "kernels-young", "key.done"]


def test_sweeping_forgets_the_oldest_beyond_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(builds, "MOST_FOLDERS", 1)
    home = tmp_path / "triton"
    for age, name in enumerate(("old", "new")):
        (home / f"kernels-{name}").mkdir(parents=True)
        (home / f"{name}.done").write_text(f"kernels-{name}", encoding="utf-8")
        os.utime(home / f"{name}.done", (age + 1, age + 1))
        os.utime(home / f"kernels-{name}", (1, 1))
    workshop(tmp_path)
    assert sorted(path.name for path in home.iterdir()) == ["kernels-new", "new.done"]


@pytest.mark.parametrize(
    "fault",
    [
        CandidateFault(Outcome.HUNG, "killed after 30 s while being compiled"),
        CandidateFault(
            Outcome.CRASHED, "it raised CompilationError: at 5:27: nothing at line 3 of the candidate"
        ),
    ],
)
def test_faults_of_compiling_are_failed_builds(tmp_path: Path, fault: CandidateFault):
    with pytest.raises(BuildFailed, match=r"compil"):
        workshop(tmp_path)._require_compiling(fault, 30.0)


def test_other_faults_are_left_to_the_real_run(tmp_path: Path):
    workshop(tmp_path)._require_compiling(CandidateFault(Outcome.CRASHED, "it raised TypeError"), 30.0)

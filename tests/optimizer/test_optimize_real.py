"""The optimize stage with the real judge and the catalog on one small operator."""

from pathlib import Path

import pytest

from extractor.run_folder import RunFolder
from extractor.task import TASK_SIDECAR
from optimizer.grafts import GraftFile, load_candidate
from optimizer.judge.settings import JudgeSettings
from optimizer.languages.cpp import CppBuilder
from optimizer.machine import find_compiler, machine_facts
from optimizer.optimize import OptimizeReport, optimize
from optimizer.policies.catalog import CatalogPolicy
from optimizer.scores import all_attempts
from optimizer.search import Budget
from optimizer.store import RunStore
from tests.optimizer.fakes import make_run
from tests.optimizer.fixtures.tasks import linear

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = make_run(tmp_path / "run", ())
    task = linear(folder.tasks_dir, dtype="bfloat16")
    ops = tuple(op.model_copy(update={"dtype": "bfloat16", "shape": (1, 1, 96)}) for op in task.spec.ops)
    sidecar = task.spec.model_copy(update={"ops": ops}).model_dump_json()  # the catalog reads dtypes from ops
    (task.folder / TASK_SIDECAR).write_text(sidecar, encoding="utf-8")
    return folder


def go(run: RunFolder, policy: str = "catalog") -> OptimizeReport:
    writer = CatalogPolicy(machine_facts())
    writer.name = policy
    settings = JudgeSettings(timing_seconds=0.02, trials=2)
    return optimize(run, policy=writer, budget=Budget(2, 1), judge_settings=settings)


def test_catalog_kernels_are_judged_stored_and_grafted(run: RunFolder) -> None:
    report = go(run)
    (task,) = report.tasks
    assert task.counts.judged == 2
    assert task.best is not None
    with RunStore.open(run.path, readonly=True) as store:
        ((first, second),) = all_attempts(store).values()
        assert first[0] is not None
        assert second[0] is not None
        assert store.query("SELECT DISTINCT machine FROM verdicts") == [(machine_facts().key,)]
    grafts = GraftFile.load(run.path)
    assert grafts.complete
    assert grafts.machine == machine_facts().key
    for record in grafts.grafts:  # how fast depends on the machine; what is named must be there and build
        assert CppBuilder().build(load_candidate(run.path, record)).path.exists()

    again = go(run, policy="the same catalog under another name")
    assert again.judged == 0
    assert again.tasks[0].counts.reused == 2
    assert again.grafts == report.grafts

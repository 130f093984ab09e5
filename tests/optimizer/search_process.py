"""A search in a process of its own, to be killed: ``python -m tests.optimizer.search_process RUN SECONDS``.

Appends one line to RUN/judged.txt when it starts judging a candidate, so that the killer can count.
"""

import sys
import time
from pathlib import Path

from extractor.run_folder import RunFolder
from optimizer.candidate import Candidate
from optimizer.judge.verdict import Verdict
from optimizer.optimize import OptimizeReport, optimize
from optimizer.search import Budget
from tests.optimizer.fakes import MACHINE, FakeJudge, FakePolicy, FakeSettings, kernel

ANSWERS = [[kernel(1.0 + 0.1 * g + 0.01 * t, f"{g}-{t}") for t in range(4)] for g in range(4)]


class SlowJudge(FakeJudge):
    """Takes its time, and keeps a tally outside the store."""

    def __init__(self, tally: Path, seconds: float) -> None:
        super().__init__()
        self.tally = tally
        self.seconds = seconds

    def evaluate(self, candidate: Candidate) -> Verdict:
        with self.tally.open("a") as file:
            file.write(f"{candidate.sha}\n")
        time.sleep(self.seconds)
        return super().evaluate(candidate)


def run_search(folder: Path, seconds: float = 0.0) -> OptimizeReport:
    """The same search every time."""
    run = RunFolder(folder)
    with run.lock():
        return optimize(
            run,
            policy=FakePolicy(ANSWERS),
            budget=Budget(4, 4),
            judge_settings=FakeSettings(),  # type: ignore[arg-type]
            machine=MACHINE,
            open_judge=lambda task, settings: SlowJudge(folder / "judged.txt", seconds),
        )


if __name__ == "__main__":
    run_search(Path(sys.argv[1]), float(sys.argv[2]))

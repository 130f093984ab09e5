"""Judges the same candidates again and again: are the verdicts the same, and how far do the speedups spread?

    python benchmarks/judge_repetitions.py TASK CANDIDATE... [--times 100] [--device cpu] [--fresh 25] [--json]

The judge is opened anew every ``--fresh`` evaluations, so that other trial inputs and weights are drawn. Candidates
take turns, so that a slow moment of the machine hits all alike. Exit status 1 if any candidate got two outcomes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Repeated:
    """What one candidate was told: outcomes with their counts, and quantiles of the speedups it was given."""

    candidate: str
    outcomes: dict[str, int] = field(default_factory=dict)
    speedup_p20: float | None = None
    speedup_median: float | None = None
    speedup_p80: float | None = None
    spread: float | None = None  # (p80 - p20) / median


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", type=Path)
    parser.add_argument("candidates", type=Path, nargs="+")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--fresh", type=int, default=25)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from optimizer.judge.judge import Judge, JudgeSettings
    from optimizer.judge.single import open_task, read_candidate
    from optimizer.judge.timing import quantiles

    candidates = {str(path): read_candidate(path) for path in options.candidates}
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in candidates}
    speedups: dict[str, list[float]] = {name: [] for name in candidates}
    started, left, evaluations = time.monotonic(), options.times, 0
    opening = 0.0
    with open_task(options.task, options.device) as task:
        while left > 0:
            opened = time.monotonic()
            with Judge(task, JudgeSettings(device=options.device)) as judge:
                opening += time.monotonic() - opened
                for _ in range(min(options.fresh, left)):
                    for name, candidate in candidates.items():
                        verdict = judge.evaluate(candidate)
                        outcomes[name][verdict.outcome.value] += 1
                        if verdict.speedup is not None:
                            speedups[name].append(verdict.speedup)
                        evaluations += 1
            left -= options.fresh
    minutes = (time.monotonic() - started - opening) / 60
    rows = []
    for name in candidates:
        row = Repeated(name, dict(outcomes[name]))
        if speedups[name]:
            found = quantiles(speedups[name])
            row.speedup_p20, row.speedup_median, row.speedup_p80 = found.p20, found.median, found.p80
            row.spread = found.spread
        rows.append(row)
    if options.json:
        facts = {"evaluations_per_minute": evaluations / minutes, "candidates": [asdict(row) for row in rows]}
        print(json.dumps(facts, indent=1))
    else:
        for row in rows:
            times = "" if row.spread is None else f", {row.speedup_median:.2f}x, spread {row.spread:.1%}"
            print(f"{row.candidate}: {row.outcomes}{times}")
        print(f"{evaluations / minutes:.0f} evaluations a minute")
    return int(any(len(row.outcomes) > 1 for row in rows))


if __name__ == "__main__":
    sys.exit(main())

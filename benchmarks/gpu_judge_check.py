"""What the judge does on this GPU: clear-cut answers, the same ones again, and evaluations per minute.

    python benchmarks/gpu_judge_check.py [--candidates 48] [--repeat 5] [--json FILE]

Judges an operator of a few lines with honest kernels that differ in their block size, compiled ahead by eight
processes while another one is measured, and a few candidates that must fail in a stated way. Prints the speedups'
spread over repetitions in both regimes. The first evaluations of a machine also compile what Triton needs for
itself; they are not counted. Needs a GPU; exit status 0 only if every answer is the stated one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from extractor.kernelbench import import_kernelbench
from optimizer.candidate import Candidate, Language
from optimizer.judge.judge import Judge
from optimizer.judge.settings import JudgeSettings
from optimizer.judge.verdict import Outcome

TASK = '''"""A gated activation over rows of a few thousand elements."""

import torch


class Model(torch.nn.Module):
    def forward(self, gate, up):
        return torch.nn.functional.silu(gate) * up


def get_inputs():
    return [torch.randn(512, 8192).bfloat16(), torch.randn(512, 8192).bfloat16()]


def get_init_inputs():
    return []
'''

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def silu_gate(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = {mask}
    g = tl.load(gate + at, mask=inside).to(tl.float32)
    u = tl.load(up + at, mask=inside).to(tl.float32)
    {wait}
    silu = (g / (1.0 + tl.exp(-g))).to(tl.bfloat16).to(tl.float32)
    tl.store(out + at, ({result}).to(tl.bfloat16), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        out = torch.empty_like(gate)
        n = out.numel()
        silu_gate[(triton.cdiv(n, {block}),)](gate, up, out, n, BLOCK={block}, num_warps={warps})
        return out
"""


def kernel(
    block: int = 1024, warps: int = 4, *, mask: str = "at < n", result: str = "silu * u", wait: str = ""
) -> Candidate:
    """An honest kernel, or one that is spoilt in the given place."""
    fields = {"block": block, "warps": warps, "mask": mask, "result": result, "wait": wait}
    return Candidate(Language.TRITON, KERNEL.format(**fields))


ENDLESS = "while tl.atomic_add(gate.to(tl.pointer_type(tl.int32)), 0) != 123456789: pass"

FAULTS = {
    "half written": (kernel(mask="at < n // 2"), {Outcome.WRONG}),
    "the gate alone": (kernel(result="silu"), {Outcome.WRONG}),
    "does not compile": (kernel(result="silu * nothing"), {Outcome.BUILD_FAILED}),
    "hangs": (kernel(wait=ENDLESS), {Outcome.HUNG}),
}


@dataclass(frozen=True)
class Report:
    """What was found. Spreads are (largest - smallest) / median of one kernel's repeated speedups."""

    device: str
    honest: int
    passed: int
    faults: int
    caught: int
    evaluations_per_minute: float
    eager_speedup: float
    eager_spread: float
    graph_speedup: float | None
    graph_spread: float | None
    walls: tuple[str, ...]
    missing_walls: tuple[str, ...]
    surprises: tuple[str, ...]


def variants(count: int) -> list[Candidate]:
    """So many honest kernels that differ in what is compiled."""
    shapes = [(block, warps) for block in (256, 512, 1024, 2048, 4096) for warps in (1, 2, 4, 8)]
    sources = [kernel(*shapes[number % len(shapes)]).source for number in range(count)]
    # Beyond the shapes a name makes the difference: a compiled kernel is cached by its text.
    return [
        Candidate(Language.TRITON, source.replace("silu_gate", f"silu_gate_{number}"))
        for number, source in enumerate(sources)
    ]


def measure(candidates: int, repeat: int) -> Report:
    """Judge everything once and one kernel ``repeat`` times."""
    settings = JudgeSettings(device="cuda", timing_seconds=0.2, run_limit_s=10.0)
    surprises: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kernelgraft-check-") as scratch:
        folder = Path(scratch)
        (folder / "silu_gate.py").write_text(TASK, encoding="utf-8")
        task = import_kernelbench(folder / "silu_gate.py", folder / "task", device="cuda")
        with Judge(task, settings) as judge:
            first = judge.evaluate(kernel())  # compiles what is Triton's own
            started = time.perf_counter()
            honest = list(judge.evaluate_many(variants(candidates)))
            minutes = (time.perf_counter() - started) / 60
            again = [first, *(judge.evaluate(kernel()) for _ in range(repeat - 1))]
            caught = 0
            for name, (candidate, allowed) in FAULTS.items():
                verdict = judge.evaluate(candidate)
                caught += verdict.outcome in allowed
                if verdict.outcome not in allowed:
                    surprises.append(f"{name}: {verdict.outcome.value}, {verdict.reason}")
    failed = [v for v in (*honest, *again) if not v.correct]
    surprises += [f"an honest kernel: {v.outcome.value}, {v.reason}" for v in failed]
    eager = [v.results[0].speedup for v in again if v.correct]
    graph = [v.results[0].graph_speedup for v in again if v.correct]
    return Report(
        device=first.machine,
        honest=len(honest) + len(again),
        passed=len(honest) + len(again) - len(failed),
        faults=len(FAULTS),
        caught=caught,
        evaluations_per_minute=round(len(honest) / minutes, 1),
        eager_speedup=round(middle(eager) or 0.0, 3),
        eager_spread=round(spread(eager), 4),
        graph_speedup=middle(graph),
        graph_spread=spread(graph),
        walls=first.walls,
        missing_walls=first.missing_walls,
        surprises=tuple(surprises),
    )


def middle(values: list[float | None]) -> float | None:
    """Median of what is known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def spread(values: list[float | None]) -> float:
    """(largest - smallest) / median of what is known; 0 for fewer than two."""
    known = [value for value in values if value is not None]
    return (max(known) - min(known)) / statistics.median(known) if len(known) > 1 else 0.0


def main(arguments: list[str]) -> int:
    """Command line; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--candidates", type=int, default=48, help="different honest kernels to judge")
    parser.add_argument("--repeat", type=int, default=5, help="judgements of one kernel")
    parser.add_argument("--json", type=Path, help="write the report here, too")
    options = parser.parse_args(arguments)
    report = measure(options.candidates, options.repeat)
    text = json.dumps(asdict(report), indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    return int(bool(report.surprises))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

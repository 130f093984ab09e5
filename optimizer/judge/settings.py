"""What a judge is told: the profile, the limits and how long to measure. Part of every stored verdict's key."""

from dataclasses import dataclass
from enum import StrEnum

# Counts up with every change of a rule or threshold: verdicts under other rules are not reused.
RULES = 2


class Profile(StrEnum):
    """Which numerical rule decides; see :mod:`optimizer.judge.tolerance`."""

    STRICT = "strict"  # against fp64, as a multiple of eager's own error: grafts into a model
    PAPER = "paper"  # 99 % of elements within atol + rtol: KernelBench's rule


@dataclass(frozen=True)
class JudgeSettings:
    """Settings of one judge. Seconds are wall-clock, bytes are bytes.

    ``timed_workloads`` empty means all decode workloads of the task, or all workloads if it has none. ``seed``
    None draws every trial from the system's entropy. With one thread, times are CPU time; with more, wall time.
    """

    timed_workloads: tuple[str, ...] = ()
    profile: Profile = Profile.STRICT
    threads: int = 1
    trials: int = 5
    seed: int | None = None
    timing: bool = True
    run_limit_s: float = 20.0  # all checks and timings of one candidate
    load_limit_s: float = 5.0
    build_limit_s: float = 30.0
    timing_seconds: float = 0.5  # wanted measuring time per timed workload
    memory_bytes: int = 768 << 20  # what cache-defeating copies may take beyond one of each tensor
    cache_dir: str | None = None
    device: str = "cpu"  # "cpu", "cuda" or "cuda:N": where candidates run
    compile_target: str = "cuda:90"  # for Triton without a GPU: the target of the ahead-of-time compile check
    profiling: bool = False  # put a compact profile of a correct candidate into its verdict
    screening: bool = True  # off only in the self-test, which proves what stands behind the screen
    sanitize: bool = False  # GPU: also call the candidate under compute-sanitizer
    ncu: bool = False  # GPU: put what ncu counts of a correct candidate's kernels into its profile

    def __post_init__(self) -> None:
        if self.trials < 2:
            raise ValueError(
                f"trials is {self.trials}; at least 2 are needed, one of them with changed weights"
            )
        if self.threads < 1:
            raise ValueError(f"threads is {self.threads}; at least 1 is needed")

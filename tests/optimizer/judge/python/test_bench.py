"""Triton candidates judged without a GPU: honest ones pass, each fault gets its own answer, nothing leaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from optimizer.judge.verdict import Outcome, Verdict
from tests.optimizer.judge.python.sources import HEAD, HONEST, KERNEL, MODEL

Judging = Callable[[str], Verdict]

STORE = "    tl.store(out + row * width + at, scaled, mask=at < width)\n"
RETURN = "        return out\n"
LINE = HONEST[: HONEST.index("return out")].count("\n") + 1
LAUNCH = next(line for line in HONEST.splitlines() if "gain_kernel[" in line)
WRONG = HONEST.replace("tl.sigmoid(values)", "values")
IN_LIBRARY = "x * self.gain + torch.sigmoid(x)"


def test_honest_candidate_is_correct_and_never_timed(judge_gain: Judging) -> None:
    verdict = judge_gain(HONEST)
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    assert verdict.speedup is None
    assert all(result.candidate is None for result in verdict.results)
    assert verdict.launches == 1
    assert "compiles for cuda:90: gain_kernel (" in verdict.reason
    assert "registers" in verdict.reason
    assert "no GPU" in verdict.reason
    assert "seccomp" in verdict.walls or any(wall.startswith("seccomp") for wall in verdict.missing_walls)


def test_weights_packed_by_prepare_follow_changed_weights(judge_gain: Judging) -> None:
    packing = HONEST.replace(
        "    def forward",
        "    def prepare(self):\n        self.packed = self.gain.clone()\n\n    def forward",
    ).replace("x, self.gain, out", "x, self.packed, out")
    assert judge_gain(packing).outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("source", "phrase"),
    [
        (
            HONEST.replace(LAUNCH, LAUNCH.partition("](")[0] + "]"),
            "its forward launched none of its own kernels",
        ),
        (
            WRONG.replace("self.gain", "self.scale"),
            "no parameter of ModelNew matches weight gain in name, shape",
        ),
        (
            WRONG.replace("randn(width)", "randn(width).double()"),
            "no parameter of ModelNew matches weight gain",
        ),
    ],
)
def test_wrong_numbers_that_come_of_how_the_module_is_written_say_so(
    judge_gain: Judging, source: str, phrase: str
) -> None:
    verdict = judge_gain(source)
    assert verdict.outcome is Outcome.WRONG, verdict.reason
    assert phrase in verdict.reason


def test_wrong_numbers_of_a_well_written_module_get_no_hint(judge_gain: Judging) -> None:
    verdict = judge_gain(WRONG)
    assert verdict.outcome is Outcome.WRONG
    assert "ModelNew" not in verdict.reason
    assert "weights" not in verdict.reason


@pytest.mark.parametrize(
    ("source", "outcome", "phrase"),
    [
        (
            HONEST.replace(RETURN, f"        return {IN_LIBRARY}\n"),
            Outcome.REFUSED,
            "as right when its kernels do not run",
        ),
        (
            HEAD + KERNEL + MODEL.replace("        gain_kernel[", "        0 and gain_kernel[").replace(
                RETURN, f"        return {IN_LIBRARY}\n"
            ),
            Outcome.REFUSED,
            "launches none of its own kernels",
        ),
        (HONEST.replace(STORE, STORE.replace(", mask=at < width", "")), Outcome.WRONG, "kernel gain_kernel"),
        (HONEST.replace("tl.load(x + row * width + at, mask=at < width)", "tl.load(x + row * width + at)"),
         Outcome.WRONG, "gain_kernel reads 4 bytes at byte offset 480 of a tensor of 480 bytes"),
        (HONEST.replace(STORE, ""), Outcome.WRONG, "output 0"),
        (HONEST.replace(RETURN, "        x.add_(1)\n" + RETURN), Outcome.WRONG, f"writes to its inputs at line {LINE}"),
        (HONEST.replace(RETURN, "        self.gain.mul_(2)\n" + RETURN), Outcome.WRONG, "writes to its weights"),
        (HONEST.replace("return out", "return out[:2]"), Outcome.WRONG, "has shape (2, 40); it should have (3, 40)"),
        (HONEST.replace("return out", "return out.double()"), Outcome.WRONG, "dtype float64; it should have float32"),
        (HONEST.replace("return out", "return out, out"), Outcome.WRONG, "2 outputs; the task returns 1"),
        (HONEST.replace("return out", "return 'out'"), Outcome.WRONG, "str among the outputs"),
        (HONEST.replace("return out", "raise ValueError('no')"), Outcome.CRASHED, f"ValueError: no at line {LINE}"),
        (HONEST.replace("return out", "raise SystemExit(0)"), Outcome.CRASHED, "SystemExit"),
        (HONEST.replace("return out", "import os; os._exit(0)"), Outcome.CRASHED, "exit status 0"),
        (HONEST.replace("return out", "import os; os.fork()"), Outcome.CRASHED, "PermissionError"),
        (HONEST.replace("return out", "open('/etc/passwd')"), Outcome.CRASHED, "PermissionError"),
        (HONEST.replace("return out", "torch.empty(1 << 40)"), Outcome.CRASHED, "RuntimeError"),
        (HONEST.replace("width)\n", "width\n", 1), Outcome.CRASHED, "SyntaxError"),
        (HONEST.replace("ModelNew", "Other"), Outcome.CRASHED, "ModelNew"),
        (
            HONEST.replace("return out", "torch.set_flush_denormal(True); return out"),
            Outcome.WRONG,
            "floating-point control",
        ),
        (
            HONEST.replace("return out", "torch.set_default_dtype(torch.float64); return out"),
            Outcome.WRONG,
            "it changes default_dtype torch.float32 -> torch.float64",
        ),
    ],
)  # fmt: skip
def test_fault_is_named(judge_gain: Judging, source: str, outcome: Outcome, phrase: str) -> None:
    assert source != HONEST
    verdict = judge_gain(source)
    assert verdict.outcome is outcome, verdict.reason
    assert phrase in verdict.reason


def test_hanging_candidate_is_killed(judge_gain: Judging) -> None:
    verdict = judge_gain(HONEST.replace("return out", "while True: pass"))
    assert verdict.outcome is Outcome.HUNG


def test_static_output_is_refused(judge_gain: Judging) -> None:
    static = HONEST.replace(
        "out = torch.empty_like(x)", "out = self.__dict__.setdefault('kept', torch.empty_like(x))"
    )
    verdict = judge_gain(static)
    assert verdict.outcome is Outcome.WRONG
    assert "same memory as an output of an earlier call" in verdict.reason


def test_lost_update_is_a_data_race(judge_gain: Judging) -> None:
    racing = HONEST.replace("row, at = tl.program_id(0)", "row, at = 0 * tl.program_id(0)")
    reading = racing.replace(
        STORE, "    scaled += tl.load(out + row * width + at, mask=at < width)\n" + STORE
    )
    verdict = judge_gain(reading)
    assert verdict.outcome is Outcome.WRONG
    assert "another program of the same launch" in verdict.reason


def test_kernel_that_only_the_interpreter_takes_is_a_build_failure(judge_gain: Judging) -> None:
    with_narrow_product = HONEST.replace(
        STORE,
        "    eye = tl.zeros((8, 8), tl.float16)\n"
        "    scaled += tl.sum(tl.dot(eye, eye)).to(tl.float32)\n" + STORE,
    )
    verdict = judge_gain(with_narrow_product)
    assert verdict.outcome is Outcome.BUILD_FAILED, verdict.reason
    assert "cuda:90" in verdict.reason
    assert verdict.speedup is None


def test_changed_state_is_only_reported_by_the_paper_profile(judge_gain_loosely: Judging) -> None:
    verdict = judge_gain_loosely(
        HONEST.replace("return out", "torch.set_float32_matmul_precision('medium'); return out")
    )
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    assert any("matmul_precision highest -> medium" in change for change in verdict.state_changes)
    clean = judge_gain_loosely(HONEST)
    assert clean.outcome is Outcome.CORRECT
    assert clean.state_changes == ()


@pytest.mark.parametrize(
    "reply",
    [
        "b'D' + bytes(11) + b'[' * 30000",
        "b'D' + bytes(11) + b'{\"line\": 1e999}'",
        'b\'D\' + bytes(11) + b\'{"launches": [1], "records": [1, {"kernel": []}], "state": []}\'',
        "b'D' + bytes(11) + b'{\"records\": 7}'",
        "b'D' + bytes(11) + b'{\"state\": 7}'",
        "b'H' + b'[' * 30000",
        "b'H[]'",
        "b'X'",
        "b''",
        "bytes(65000)",
    ],
)
def test_forged_replies_are_no_trouble(judge_gain: Judging, reply: str) -> None:
    forging = (
        f"import os\n        for file in range(3, 30):\n            try:\n                os.write(file, {reply})\n"
        "            except OSError:\n                pass\n        return torch.empty_like(x)"
    )
    verdict = judge_gain(HONEST.replace("return out", forging))
    assert verdict.outcome in (Outcome.CRASHED, Outcome.WRONG), verdict.reason

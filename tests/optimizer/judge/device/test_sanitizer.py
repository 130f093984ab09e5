"""compute-sanitizer's reports, as the tool writes them, and the sentences made of them."""

import pytest

from optimizer.judge.device.sanitizer import ERRORS_FOUND, DidNotRun, Pass, finding, sanitizer_command

CLEAN = """kernelgraft-workload default
========= COMPUTE-SANITIZER
kernelgraft-workload odd
kernelgraft-done
========= ERROR SUMMARY: 0 errors
"""

OUT_OF_BOUNDS = """kernelgraft-workload default
========= COMPUTE-SANITIZER
kernelgraft-workload odd
========= Invalid __global__ read of size 4 bytes
=========     at void scale<float>(const float *, float *, int)+0xc0 in /scratch/candidate.py:17
=========     by thread (100,0,0) in block (0,0,0)
=========     Access to 0x7f3f1e800190 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3f1e800000 of size 400 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========
========= Invalid __global__ write of size 8 bytes
=========     at other+0x10
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"
Traceback (most recent call last):
torch.AcceleratorError: CUDA error: unspecified launch failure
========= ERROR SUMMARY: 2 errors
"""

RACE = """========= COMPUTE-SANITIZER
kernelgraft-workload default
kernelgraft-done
========= Error: Race reported between Write access at sum_kernel(float *)+0x180 in cuda.cu:9
=========     and Read access at sum_kernel(float *)+0x250 in cuda.cu:12 [13 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_a_clean_report_is_no_finding():
    assert finding(CLEAN, 0) == ""


def test_the_first_error_is_told_with_kernel_line_place_and_workload():
    assert finding(OUT_OF_BOUNDS, ERRORS_FOUND) == (
        "compute-sanitizer: Invalid __global__ read of size 4 bytes in kernel scale at line 17 of the candidate, "
        "1 bytes after an allocation of 400 bytes (workload odd)"
    )


def test_a_misaligned_access():
    report = OUT_OF_BOUNDS.replace("out of bounds", "misaligned").replace("and is 1 bytes after", "near")
    assert "at a misaligned address" in finding(report, ERRORS_FOUND)


def test_a_race():
    sentence = "compute-sanitizer: race in shared memory in kernel sum_kernel (workload default)"
    assert finding(RACE, ERRORS_FOUND) == sentence


def test_hazards_that_are_warnings_are_no_finding():
    report = RACE.replace("Error: Race", "Warning: Race").replace(
        "(1 error, 0 warnings)", "(0 errors, 1 warning)"
    )
    assert finding(report, 0) == ""


@pytest.mark.parametrize(
    ("output", "status", "why"),
    [
        (
            '========= Error: Device not supported. Please refer to the "Supported Devices" section\n',
            1,
            "Device not",
        ),
        ("========= COMPUTE-SANITIZER\n========= Internal Error: out of memory\n", 1, "out of memory"),
        (
            "========= COMPUTE-SANITIZER\nTypeError: no\n========= ERROR SUMMARY: 0 errors\n",
            1,
            "status 1 .*: TypeError",
        ),
        (CLEAN, 137, "status 137"),
        (CLEAN.replace("kernelgraft-done\n", ""), 0, "status 0"),
        (CLEAN.replace("========= ERROR SUMMARY: 0 errors", ""), 0, "status 0"),
        ("", 127, "status 127"),
    ],
)
def test_what_is_no_answer_is_not_taken_for_a_clean_one(output: str, status: int, why: str):
    with pytest.raises(DidNotRun, match=why):
        finding(output, status)


def test_only_memory_is_padded():
    memory, races = (sanitizer_command("/tool", which, ["python", "-c", "pass"]) for which in Pass)
    assert memory[:3] == ["/tool", "--tool", "memcheck"]
    assert "--padding" in memory
    assert "--padding" not in races
    assert memory[-3:] == races[-3:] == ["python", "-c", "pass"]

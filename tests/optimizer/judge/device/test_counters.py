"""ncu's CSV, and the lines made of it."""

import pytest

from optimizer.judge.device.counters import METRICS, DidNotCount, counters_text, ncu_command, read_counters

HEADER = ["ID", "Process ID", "Process Name", "Kernel Name", "Block Size", "Grid Size", *METRICS]
UNITS = ["", "", "", "", "block", "grid", "ns", "%", "%", "%"]


def table(*rows: list[str]) -> str:
    lines = [",".join(f'"{cell}"' for cell in row) for row in (HEADER, UNITS, *rows)]
    return "\n".join(["kernelgraft-workload default", "==PROF== Connected to process 7", *lines, ""])


def row(number: int, name: str, duration: str, *shares: str) -> list[str]:
    return [str(number), "7", "python3", name, "(128, 1, 1)", "(4, 1, 1)", duration, *shares]


def test_launches_of_one_name_are_one_line_weighted_by_time():
    launches = read_counters(
        table(
            row(0, "void add<float>(float *, int)", "1,000.00", "80.0", "10.0", "50.0"),
            row(1, "void add<half>(half *, int)", "3,000.00", "40.0", "30.0", "50.0"),
            row(2, "silu_gate_kernel", "12,500.00", "91.2", "20.0", "97.0"),
        ),
        0,
    )
    assert counters_text(launches, "default").splitlines() == [
        "ncu, default, one forward (caches flushed, clocks as they are):",
        "  12.5 us  x1  DRAM 91%  SM 20%  occupancy 97%  silu_gate_kernel",
        "  4 us  x2  DRAM 50%  SM 25%  occupancy 50%  add",
    ]


def test_many_kernels_are_cut_short():
    rows = [row(n, f"kernel{n}", "1000", "1", "1", "1") for n in range(8)]
    assert counters_text(read_counters(table(*rows), 0), "w").splitlines()[-1] == "  3 us  3 others"


def test_what_cannot_be_counted_is_zero():
    (launch,) = read_counters(table(row(0, "k", "1000", "n/a", "", "1")), 0)
    assert (launch.microseconds, launch.memory, launch.compute) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "ERR_NVGPUCTRPERM"),
        ("==WARNING== No kernels were profiled.\n", "status 1: ==WARNING== No kernels"),
        ('"ID","Kernel Name"\n"0","k"\n', "status 1"),
        (table(), "no launch"),
        ("", "status 1"),
    ],
)
def test_no_numbers_have_a_reason(output: str, why: str):
    with pytest.raises(DidNotCount, match=why):
        read_counters(output, 1)


def test_clocks_are_left_alone():
    command = ncu_command("/ncu", ["python"])
    assert command[command.index("--clock-control") + 1] == "none"
    assert command[-1] == "python"

"""Faults and cheats: each gets its stated outcome, a reason that says what happened, and never a speedup."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from optimizer.judge.verdict import Outcome, Verdict
from tests.optimizer.fixtures.kernels import LINEAR, LOOP, silu

FAULTS = {
    "zeros": (silu("std::memset(o, 0, n * 4);"), Outcome.WRONG, "error"),
    "no write": (silu(";"), Outcome.WRONG, "never written"),
    "half": (silu(LOOP.replace("i < n", "i < n / 2")), Outcome.WRONG, "never written"),
    "one element": (silu(LOOP + "o[n - 1] = 0;"), Outcome.WRONG, "at ["),
    "only the first batch": (silu(LOOP.replace("i < n", "i < 256")), Outcome.WRONG, "decode-b4"),
    "captured batches only": (
        silu(LOOP.replace("i < n", "i < (in[0].size[0] == 3 ? 512 : n)")),
        Outcome.WRONG,
        "held-out-b3",
    ),
    "wrong activation": (
        silu(LOOP.replace("std::exp(-gate[i])", "std::exp(-1.702f * gate[i])")),
        Outcome.WRONG,
        "error",
    ),
    "swapped operands": (
        silu(LOOP.replace("gate", "g").replace("up", "gate").replace("g[", "up[")),
        Outcome.WRONG,
        "error",
    ),
    "bf16 precision": (
        silu(LOOP.replace("up[i];", "up[i], o[i] = kg_to_float(kg_to_bf16(o[i]));")),
        Outcome.WRONG,
        "times eager's own",
    ),
    "nan": (silu(LOOP + "o[0] = std::numeric_limits<float>::quiet_NaN();"), Outcome.WRONG, "NaN"),
    "one past the end": (silu(LOOP + "o[n] = 1.0f;"), Outcome.WRONG, "outside its outputs"),
    "before the start": (silu(LOOP + "o[-1] = 1.0f;"), Outcome.WRONG, "outside its outputs"),
    "reads past the end": (silu(LOOP + "o[0] += up[n] * 0.0f;"), Outcome.WRONG, "NaN"),
    "mutates an input": (
        silu(LOOP + "((float*)in[1].data)[3] = 1.0f;"),
        Outcome.WRONG,
        "writes to its inputs",
    ),
    "null pointer": (silu("*(volatile float*)nullptr = 1.0f;"), Outcome.CRASHED, "null pointer"),
    "wild pointer": (
        silu("((volatile float*)out[0].data)[int64_t(1) << 40] = 1.0f;"),
        Outcome.CRASHED,
        "SIGSEGV",
    ),
    "stack overflow": (
        silu(
            "o[0] = deep(1);",
            before="volatile int zero; static int deep(int a) { volatile char b[4096]; b[0] = a; "
            "return zero ? a : deep(a + 1) + b[0]; }",
        ),
        Outcome.CRASHED,
        "SIGSEGV",
    ),
    "division by zero": (silu("volatile int z = 0; o[0] = n / z;"), Outcome.CRASHED, "SIGFPE"),
    "exception": (silu("throw 1;"), Outcome.CRASHED, "SIGABRT"),
    "memory": (
        silu("for (;;) { volatile char* p = new char[1 << 26]; p[5] = 1; }"),
        Outcome.CRASHED,
        "SIGABRT",
    ),
    "odd status": (silu(LOOP + "return 7;"), Outcome.WRONG, "returned 7"),
    "replays the first answer": (
        silu(
            "static std::vector<float> kept; if (kept.empty()) { "
            + LOOP
            + " kept.assign(o, o + n); } else { kept.resize(n); std::memcpy(o, kept.data(), n * 4); }",
            before="#include <vector>",
        ),
        Outcome.WRONG,
        "workload",
    ),
    "replays by pointer": (
        silu(
            "static const float* seen[4096]; static float* kept[4096]; static int count;"
            "for (int s = 0; s < count; ++s) if (seen[s] == gate) { std::memcpy(o, kept[s], n * 4); return KG_OK; }"
            + LOOP
            + "if (count < 4096) { seen[count] = gate; kept[count] = new float[n];"
            "std::memcpy(kept[count++], o, n * 4); }"
        ),
        Outcome.WRONG,
        "timed call on fresh inputs",
    ),
    "skips a slot seen before": (
        silu(
            "static const float* seen[4096]; static int count;"
            "for (int s = 0; s < count; ++s) if (seen[s] == gate) return KG_OK;"
            "if (count < 4096) seen[count++] = gate;" + LOOP
        ),
        Outcome.WRONG,
        "never written",
    ),
    "one static output": (
        silu(
            "static float* first; if (!first) first = o; float* real = o; o = first;" + LOOP + "(void)real;"
        ),
        Outcome.WRONG,
        "output 0",
    ),
    "flush to zero": (
        silu(
            LOOP + "__builtin_ia32_ldmxcsr_hidden();",
            before="static void __builtin_ia32_ldmxcsr_hidden() { unsigned c = 0x9fc0; ld(c); }",
        ).replace(
            "static void",
            "#define LD(a, b) a##b\nstatic void ld(unsigned c) { LD(_mm_set, csr)(c); }\nstatic void",
            1,
        ),
        Outcome.WRONG,
        "flush-to-zero",
    ),
    "kernel missing": (
        'extern "C" int kg_forward_(const kg_tensor*); static int kg_forward = 0;',
        Outcome.BUILD_FAILED,
        "exports no",
    ),
    "compile error": (silu("int x = ;"), Outcome.BUILD_FAILED, "line"),
    "missing symbol": (
        silu("helper(o);", before='extern "C" void helper(float*);'),
        Outcome.BUILD_FAILED,
        "helper",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, judge_silu: Callable[[str], Verdict]) -> None:
    source, outcome, word = FAULTS[name]
    verdict = judge_silu(source)
    assert (verdict.outcome, verdict.speedup) == (outcome, None), verdict.reason
    assert word in verdict.reason


# libc functions, under pasted names. The screen is off here: the walls must hold.
PASTE = "#define GLUE_(a, b) a##b\n#define GLUE(a, b) GLUE_(a, b)\n"
WALLS = {
    "fork": ('extern "C" int GLUE(fo, rk)();', "if (GLUE(fo, rk)() >= 0) return 7;"),
    "open": (
        'extern "C" int GLUE(op, en)(const char*, int, ...);',
        'if (GLUE(op, en)("/etc/passwd", 0) >= 0) return 7;'
        'if (GLUE(op, en)("/tmp/kernelgraft-was-here", 0101, 0600) >= 0) return 7;',
    ),
    "socket": (
        'extern "C" int GLUE(soc, ket)(int, int, int);',
        "if (GLUE(soc, ket)(2, 1, 0) >= 0) return 7;",
    ),
    "kill": (
        'extern "C" int GLUE(ki, ll)(int, int); extern "C" int getppid();',
        "if (GLUE(ki, ll)(getppid(), 0) == 0 || GLUE(ki, ll)(-1, 0) == 0) return 7;",
    ),
    "thread": (
        'extern "C" int GLUE(pthread_, create)(unsigned long*, void*, void* (*)(void*), void*);'
        "static void* idle(void*) { for (;;) {} }",
        "unsigned long t; if (GLUE(pthread_, create)(&t, nullptr, idle, nullptr) == 0) return 7;",
    ),
    "raise limits": (
        'extern "C" int GLUE(setr, limit)(int, const long*);',
        "long big[2] = {1 << 30, 1 << 30}; if (GLUE(setr, limit)(9, big) == 0) return 7;",
    ),
    "unseal inputs": (
        'extern "C" int GLUE(mpro, tect)(void*, size_t, int);',
        "if (GLUE(mpro, tect)((void*)(uintptr_t(gate) & ~uintptr_t(4095)), 4096, 3) == 0) return 7;",
    ),
}


@pytest.mark.parametrize("name", WALLS)
def test_walls_hold(name: str, judge_silu: Callable[[str], Verdict]) -> None:
    """The attempt fails inside the kernel (it would return 7), the rest of it is honest: it is merely correct."""
    declaration, attempt = WALLS[name]
    verdict = judge_silu(PASTE + declaration + silu(attempt + LOOP))
    assert verdict.outcome is Outcome.CORRECT, verdict.reason
    assert not Path("/tmp/kernelgraft-was-here").exists()


ENDINGS = {
    "hang": (silu("for (volatile int i = 0;; ++i) {}"), Outcome.HUNG, "while running workload"),
    "hang in a constructor": (
        "static int wait_forever() { for (volatile int i = 0;; ++i) {} return 0; } static int never = wait_forever();"
        + silu(),
        Outcome.HUNG,
        "being loaded",
    ),
    "exit": (
        PASTE + 'extern "C" void GLUE(_ex, it)(int);' + silu("GLUE(_ex, it)(0);"),
        Outcome.CRASHED,
        "exit status 0",
    ),
    "sleep": (
        PASTE + 'extern "C" int GLUE(usl, eep)(unsigned);' + silu(LOOP + "GLUE(usl, eep)(200);"),
        Outcome.IMPLAUSIBLE,
        "idle",
    ),
    "forged done": (
        PASTE
        + 'extern "C" long GLUE(wri, te)(int, const void*, size_t);'
        + silu(
            "char done[12] = {'D', 0, 0, 0, 0, 0, 0, 0, char(0x80), 0x1f};"
            "for (int fd = 3; fd < 2000; ++fd) GLUE(wri, te)(fd, done, 12);"
        ),
        Outcome.WRONG,
        "never written",
    ),
    "noise on the channel": (
        PASTE
        + 'extern "C" long GLUE(wri, te)(int, const void*, size_t);'
        + silu("char noise[5] = {'Z'}; for (int fd = 3; fd < 2000; ++fd) GLUE(wri, te)(fd, noise, 5);"),
        Outcome.CRASHED,
        "out of turn",
    ),
    "floods its output": (
        PASTE
        + 'extern "C" long GLUE(wri, te)(int, const void*, size_t);'
        + silu(
            LOOP + "static char b[65536];"
            "for (int i = 0; i < 50; ++i) { GLUE(wri, te)(1, b, 65536); GLUE(wri, te)(2, b, 65536); }"
        ),
        Outcome.CORRECT,
        "correct",
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_ending(name: str, judge_silu: Callable[[str], Verdict]) -> None:
    source, outcome, word = ENDINGS[name]
    verdict = judge_silu(source)
    assert verdict.outcome is outcome, verdict.reason
    assert word in verdict.reason


def test_weights_cached_at_the_first_call_are_stale(judge_linear: Callable[[str], Verdict]) -> None:
    source = LINEAR.replace(
        "const float* a = (const float*)w[0].data;",
        "static float* a; if (!a) { a = new float[N * K]; std::memcpy(a, w[0].data, N * K * 4); }",
    )
    verdict = judge_linear(source)
    assert verdict.outcome is Outcome.WRONG, verdict.reason
    assert "cache or packing of the weights is stale" in verdict.reason


def test_weights_cached_by_pointer_are_stale(judge_linear: Callable[[str], Verdict]) -> None:
    """Changed weights lie at the address the first ones had: keying a private packing by pointer is wrong."""
    source = LINEAR.replace(
        "const float* a = (const float*)w[0].data;",
        "static const void* key; static float* a;"
        "if (key != w[0].data) { key = w[0].data; a = new float[N * K]; std::memcpy(a, w[0].data, N * K * 4); }",
    )
    assert judge_linear(source).outcome is Outcome.WRONG


def test_a_packing_that_writes_the_weights_is_seen(judge_linear: Callable[[str], Verdict]) -> None:
    source = LINEAR + (
        'extern "C" size_t kg_packed_bytes(const kg_tensor* w) { return 64; }'
        'extern "C" void kg_pack(const kg_tensor* w, void* packed) { *(float*)w[0].data = 0; }'
    )
    verdict = judge_linear(source)
    assert verdict.outcome is Outcome.WRONG
    assert "writes to its weights" in verdict.reason


def test_half_of_the_products_is_seen(judge_linear: Callable[[str], Verdict]) -> None:
    verdict = judge_linear(LINEAR.replace("k < K; ++k", "k < K - 1; ++k"))
    assert verdict.outcome is Outcome.WRONG
    assert "times eager's own" in verdict.reason
    assert "weights" not in verdict.reason


SPIN = r"""
import __main__, sys, time
module = __main__ if hasattr(__main__, "_Host") else sys.modules["optimizer.judge.worker"]
honest = module._Host.run
def run(self, region, first, count):
    if count == 0:
        until = time.thread_time_ns() + 200_000
        while time.thread_time_ns() < until: pass
    return honest(self, region, first, count)
module._Host.run = run
"""


def test_time_wasted_on_empty_commands_is_not_paid_for(judge_silu: Callable[[str], Verdict]) -> None:
    """The worker's interpreter is in the candidate's process; slowing it between calls must earn nothing."""
    before = (
        'extern "C" int PyGILState_Ensure() __attribute__((weak));'
        'extern "C" void PyGILState_Release(int) __attribute__((weak));'
        'extern "C" int PyRun_SimpleString(const char*) __attribute__((weak));'
    )
    trick = (
        "static bool done; if (!done && PyRun_SimpleString) { done = true; int g = PyGILState_Ensure();"
        f'PyRun_SimpleString(R"X({SPIN})X"); PyGILState_Release(g); }}'
    )
    plain, tricked = judge_silu(silu()), judge_silu(silu(trick + LOOP, before))
    assert plain.speedup is not None
    assert tricked.speedup is not None, tricked.reason  # paid for, it would be beyond the roofline
    assert tricked.speedup < 1.3 * plain.speedup


def test_a_slow_compilation_is_killed(build_cache: Path) -> None:
    from optimizer.candidate import Candidate, Language
    from optimizer.languages.cpp import CompileFailed, CppBuilder

    bomb = (
        "template <int N, class... T> struct B : B<N - 1, T..., T..., char> {};"
        "template <class... T> struct B<0, T...> { static constexpr int v = sizeof...(T); };"
        "int x = B<26>::v;" + silu()
    )
    builder = CppBuilder(build_cache, limit_s=1.0)
    with pytest.raises(CompileFailed, match=r"longer than 1 s|out of memory"):
        builder.build(Candidate(Language.CPP, bomb))


def test_nothing_is_left_behind(judge_silu: Callable[[str], Verdict], build_cache: Path) -> None:
    """After a hang, a crash and an honest run: no child process, no scratch folder, no more descriptors."""
    judge_silu(silu())
    descriptors = len(os.listdir("/proc/self/fd"))
    shared = set(os.listdir("/dev/shm"))
    for source in (silu(), ENDINGS["hang in a constructor"][0], silu("*(volatile int*)nullptr = 0;")):
        judge_silu(source)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert set(os.listdir("/dev/shm")) <= shared
    assert not list(build_cache.glob("building-*"))
    children = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True, check=False
    ).stdout
    assert "optimizer.judge.worker" not in children

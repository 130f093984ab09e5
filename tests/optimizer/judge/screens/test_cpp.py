"""The token screen: each rule refuses by name and line, and comments, strings and look-alikes do not trip it."""

import pytest

from optimizer.candidate import Candidate, Language
from optimizer.judge.screens import MAX_SOURCE_BYTES, screen
from optimizer.judge.screens.cpp import screen_cpp
from tests.optimizer.fixtures import kernels

HONEST = kernels.silu()


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ('asm volatile("nop");', "no inline assembly", 2),
        ('void f() { __asm__("nop"); }', "no inline assembly", 2),
        ("#include <fstream>", "headers", 2),
        ("#include </etc/passwd>", "headers", 2),
        ('#include "../secret.h"', "headers", 2),
        ("#define H <thread>\n#include H", "headers", 3),
        ("%:include <sys/mman.h>", "headers", 2),
        ("#inc\\\nlude <unistd.h>", "headers", 2),
        ("#embed </etc/passwd>", "headers", 2),
        ("auto f = fork();", "no system calls or processes", 2),
        ("void* p = dlopen(0, 1);", "no dynamic loading", 2),
        ("std::thread t;", "no threads but OpenMP's", 2),
        ("std::async(f);", "no threads but OpenMP's", 2),
        ("void f() {\n#pragma omp parallel num_threads(64)\n}", "no threads but OpenMP's", 3),
        ('void f() { printf("x"); }', "no files, sockets or output", 2),
        ("void f() { std::exit(0); }", "no signals, exits or jumps out", 2),
        ("auto t = std::chrono::steady_clock::now();", "no clocks", 2),
        ("auto t = __rdtsc();", "no clocks", 2),
        ("void f() { _mm_setcsr(0x9fc0); }", "no change of the floating-point environment", 2),
        ("__attribute__((constructor)) static void f() {}", "no code outside the entry points", 2),
        ("[[gnu::constructor]] static void f() {}", "no code outside the entry points", 2),
        ("[[using gnu: hot, constructor]] static void f() {}", "no code outside the entry points", 2),
        (
            '__attribute__((target("avx2"), hot, aligned(64), cold, unused, used, constructor)) static void f() {}',
            "no code outside the entry points",
            2,
        ),
        (
            "#define EARLY constructor\n__attribute__((EARLY)) static void f() {}",
            "no code outside the entry points",
            2,
        ),
        ('extern "C" int(raise)(int);', "no system calls or processes", 2),
        ("static int s = (system)(0);", "no system calls or processes", 2),
        ('extern "C" int connect(int, const void*, unsigned);', "no files, sockets or output", 2),
        ("static int s = socket(2, 1, 0);", "no files, sockets or output", 2),
        ("static int s = ::socket(2, 1, 0);", "no files, sockets or output", 2),
        ("#define JOIN(a, b) a##b", "no pasted names", 2),
        ("#define JOIN(a, b) a%:%:b", "no pasted names", 2),
        ("#define JOIN(a, b) a#\\\n#b", "no pasted names", 2),
        ("#define JOIN(a, b) a/* */## /*\n*/b", "no pasted names", 2),
        ("#define JOIN(...) sys##__VA_ARGS__", "no pasted names", 2),
        ("#define JOIN(rest...) sys##rest", "no pasted names", 2),
        ("#define CALL sys##call", "no pasted names", 2),
        ("#define CALL(a, b) my_kernel_##a##b\nCALL(x; sys, call)", "no pasted names", 2),
        (
            "#define CALL(a, b) my_kernel_##a##b\n#define MORE(a) CALL(a, call)\nMORE(x; sys)",
            "no pasted names",
            2,
        ),
        ("#define CALL(a, b) my_kernel_##a b##call\nCALL(x, sys)", "no pasted names", 2),
        ("#define CALL(a, b) my_kernel_##a##b\nauto f = CALL\n(x; sys, call)", "no pasted names", 2),
        ("#define CALL(b, ...) , ##__VA_ARGS__##b\nf(0 CALL(call, x, sys))", "no pasted names", 2),
        ("#define HOOK(a) con##a", "no pasted names", 2),
    ],
)
def test_rule(text: str, rule: str, line: int) -> None:
    refusal = screen_cpp(f"// candidate\n{text}\n{HONEST}")
    assert refusal is not None
    assert (refusal.rule, refusal.line) == (rule, line)
    assert refusal.rule in refusal.reason
    assert f"line {line}" in refusal.reason


@pytest.mark.parametrize(
    "text",
    [
        "// fork(); asm; std::thread",
        "/* #include <fstream>\n dlopen */",
        'static const char* text = "system(\\"rm\\") asm";',
        'static const char* raw = R"x(fork(); // )x";',
        "#include <vector>\n#include <immintrin.h>",
        "struct clock_state { int time; float exit_scale; }; static clock_state s; static int f() { return s.time; }",
        "static int assemble(int connect) { return connect + 1'000; }",
        "#pragma omp declare simd\nstatic float g(float x) { return x; }",
        '__attribute__((always_inline, optimize("O3"))) static inline int h() { return 1; }',
        "static char c = '\"'; static char d = '\\'';",
        "#include <span>\n#include <complex>\n#include <tmmintrin.h>\n#include <experimental/simd>",
        "#define KERNEL(n) static int my_kernel_##n() { return n; }\nKERNEL(4)",
        "#define CASE(type) static type scale_##type##_of_rows;",
        "#define CASE(type, bits) static type scale_##type##_##bits;\nCASE(float, 32)\nCASE(double, 64)",
        "#define CALL(f, ...) f(0, ##__VA_ARGS__)",
        "#define BITS(n) 0x##n",
        "static int f() { int socket = 0; return socket; }",
        "struct graph { int connect(int x) const { return x; } }; static int f(graph g) { return g.connect(1); }",
        "__attribute__((hot)) static float section(float x) { return x; }",
        "[[gnu::always_inline]] static inline float cleanup(float x) { return x; }",
    ],
)
def test_honest_text_passes(text: str) -> None:
    assert screen_cpp(f"{text}\n{HONEST}") is None


@pytest.mark.parametrize(
    "source", [kernels.LINEAR, kernels.LINEAR_PACKED, kernels.RMSNORM, kernels.SILU_BF16]
)
def test_honest_kernels_pass(source: str) -> None:
    assert screen(Candidate(Language.CPP, source)) is None


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("", "kg_forward"),
        ("int kg_forward(const kg_tensor* in);", 'extern "C"'),
        ("// kg_forward\nint x;", "kg_forward"),
        (HONEST + " " * MAX_SOURCE_BYTES, "KiB"),
        (HONEST + "\0", "NUL"),
        (HONEST + "// \udcff", "UTF-8"),
    ],
)
def test_what_is_no_kernel(source: str, word: str) -> None:
    refusal = screen_cpp(source)
    assert refusal is not None
    assert word in refusal.reason

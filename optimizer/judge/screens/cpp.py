"""The screen of C++ candidates: by tokens, so that comments and strings cannot trip it or hide from it."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.judge.screens.pasting import pasted_name
from optimizer.judge.screens.refusal import Refusal, unreadable
from optimizer.judge.screens.tokens import (
    Ban,
    Token,
    banned_name,
    hooked_attribute,
    includes,
    literal_header,
    names,
    tokenize,
)

ALLOWED_HEADERS = names(
    "kg.h algorithm array bit cassert cfloat climits cmath cstddef cstdint cstdlib cstring functional initializer_list "
    "limits memory new numeric tuple type_traits utility vector immintrin.h omp.h stddef.h stdint.h string.h math.h "
    "stdlib.h float.h limits.h assert.h arm_neon.h arm_sve.h x86intrin.h xmmintrin.h emmintrin.h pmmintrin.h "
    "tmmintrin.h smmintrin.h nmmintrin.h wmmintrin.h span iterator numbers ranges concepts optional variant complex "
    "stdexcept exception string string_view map set unordered_map unordered_set deque bitset ratio valarray inttypes.h "
    "cinttypes experimental/simd"
)

BANS = (
    Ban("no inline assembly", names("asm __asm __asm__"), "use intrinsics from immintrin.h"),
    Ban(
        "no system calls or processes",
        names(
            "syscall fork vfork clone execve execv execvp execl execlp popen posix_spawn ptrace prctl kill raise "
            "tgkill unshare setrlimit sched_setaffinity mmap mprotect munmap mremap memfd_create shm_open ioctl fcntl "
            "system"
        ),
        "a kernel only computes on the tensors it is given",
        called_only=names("raise kill clone system"),
    ),
    Ban(
        "no dynamic loading",
        names("dlopen dlsym dlmopen dl_iterate_phdr dladdr"),
        "link nothing, call nothing outside",
    ),
    Ban(
        "no files, sockets or output",
        names(
            "fopen freopen ifstream ofstream fstream filesystem socket connect sendto recvfrom printf fprintf puts "
            "putchar cout cerr clog perror getenv setenv environ openat mkstemp"
        ),
        "return KG_UNSUPPORTED for what the kernel does not serve; nothing is read or printed",
        called_only=names("puts connect socket"),
    ),
    Ban(
        "no threads but OpenMP's",
        names(
            "pthread_create pthread_t thread jthread async thrd_create promise packaged_task omp_set_num_threads "
            "omp_set_dynamic num_threads"
        ),
        "use `#pragma omp parallel for`; the judge sets how many threads there are",
        called_only=names("async thread promise num_threads"),
    ),
    Ban(
        "no signals, exits or jumps out",
        names(
            "signal sigaction sigprocmask exit _exit _Exit quick_exit atexit at_quick_exit setjmp longjmp "
            "__cxa_atexit terminate"
        ),
        "return KG_OK or KG_UNSUPPORTED",
        called_only=names("signal exit terminate"),
    ),
    Ban(
        "no clocks",
        names(
            "clock clock_gettime gettimeofday chrono time nanosleep usleep sleep __rdtsc _rdtsc __rdtscp rdtsc "
            "omp_get_wtime __builtin_ia32_rdtsc __builtin_ia32_rdtscp"
        ),
        "what a kernel does may depend on its arguments only",
        called_only=names("time clock"),
    ),
    Ban(
        "no change of the floating-point environment",
        names(
            "_mm_setcsr _MM_SET_FLUSH_ZERO_MODE _MM_SET_DENORMALS_ZERO_MODE _MM_SET_ROUNDING_MODE fesetround fesetenv "
            "feupdateenv feenableexcept fedisableexcept __builtin_ia32_ldmxcsr _MM_SET_EXCEPTION_MASK"
        ),
        "it would change the numerics of the whole model",
    ),
)


def screen_cpp(source: str) -> Refusal | None:
    """The first rule of the cpp language that ``source`` breaks, or None."""
    refusal = unreadable(source)
    if refusal is not None:
        return refusal
    tokens = list(tokenize(source))
    return (
        _headers(tokens)
        or banned_name(tokens, BANS)
        or pasted_name(tokens, BANS)
        or hooked_attribute(tokens, "kg_forward and kg_pack")
        or _entry_point(tokens)
    )


def _headers(tokens: Sequence[Token]) -> Refusal | None:
    rule = "headers"
    for found in includes(tokens):
        if found.directive != "include":
            detail = f"#{found.directive} is not accepted; use #include of a standard header"
            return Refusal(rule, found.line, detail)
        header = literal_header(found.header)
        if header not in ALLOWED_HEADERS:
            shown = header or found.header or "nothing"
            return Refusal(
                rule,
                found.line,
                f"#include of {shown} is not accepted; kg.h is included already, and plain C++ headers such as "
                "<cmath>, <vector>, <algorithm>, <immintrin.h>, <omp.h> are allowed",
            )
    return None


def _entry_point(tokens: Sequence[Token]) -> Refusal | None:
    named = [i for i, token in enumerate(tokens) if token.text == "kg_forward" and token.kind == "name"]
    if not named:
        return Refusal(
            "entry point",
            0,
            'there is no kg_forward; define extern "C" int kg_forward(const kg_tensor* in, const kg_tensor* w, '
            "const kg_tensor* out, const void* packed)",
        )
    if not any(token.kind == "string" and token.text == '"C"' for token in tokens):
        return Refusal("entry point", tokens[named[0]].line, 'kg_forward must be declared extern "C"')
    return None

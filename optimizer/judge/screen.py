"""The screen: rules a source must keep before anything of it is compiled or run.

For C++ it reads tokens, not text: comments and strings cannot trip it or hide from it. It is a courtesy that tells a
policy at once what is not accepted and what would be; the defence is the worker's isolation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from optimizer.candidate import Candidate, Language

MAX_SOURCE_BYTES = 256 << 10


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED_HEADERS = _names(
    "kg.h algorithm array bit cassert cfloat climits cmath cstddef cstdint cstdlib cstring functional initializer_list "
    "limits memory new numeric tuple type_traits utility vector immintrin.h omp.h stddef.h stdint.h string.h math.h "
    "stdlib.h float.h limits.h assert.h arm_neon.h arm_sve.h x86intrin.h xmmintrin.h emmintrin.h"
)


@dataclass(frozen=True)
class _Ban:
    rule: str
    names: frozenset[str]
    instead: str


_BANS = (
    _Ban("no inline assembly", _names("asm __asm __asm__"), "use intrinsics from immintrin.h"),
    _Ban(
        "no system calls or processes",
        _names(
            "syscall fork vfork clone execve execv execvp execl execlp popen posix_spawn ptrace prctl kill raise "
            "tgkill unshare setrlimit sched_setaffinity mmap mprotect munmap mremap memfd_create shm_open ioctl fcntl"
        ),
        "a kernel only computes on the tensors it is given",
    ),
    _Ban(
        "no dynamic loading",
        _names("dlopen dlsym dlmopen dl_iterate_phdr dladdr"),
        "link nothing, call nothing outside",
    ),
    _Ban(
        "no files, sockets or output",
        _names(
            "fopen freopen ifstream ofstream fstream filesystem socket connect sendto recvfrom printf fprintf puts "
            "putchar cout cerr clog perror getenv setenv environ openat mkstemp"
        ),
        "return KG_UNSUPPORTED for what the kernel does not serve; nothing is read or printed",
    ),
    _Ban(
        "no threads but OpenMP's",
        _names(
            "pthread_create pthread_t thread jthread async thrd_create promise packaged_task omp_set_num_threads "
            "omp_set_dynamic num_threads"
        ),
        "use `#pragma omp parallel for`; the judge sets how many threads there are",
    ),
    _Ban(
        "no signals, exits or jumps out",
        _names(
            "signal sigaction sigprocmask exit _exit _Exit quick_exit atexit at_quick_exit setjmp longjmp "
            "__cxa_atexit terminate"
        ),
        "return KG_OK or KG_UNSUPPORTED",
    ),
    _Ban(
        "no clocks",
        _names(
            "clock clock_gettime gettimeofday chrono time nanosleep usleep sleep __rdtsc _rdtsc __rdtscp rdtsc "
            "omp_get_wtime __builtin_ia32_rdtsc __builtin_ia32_rdtscp"
        ),
        "what a kernel does may depend on its arguments only",
    ),
    _Ban(
        "no change of the floating-point environment",
        _names(
            "_mm_setcsr _MM_SET_FLUSH_ZERO_MODE _MM_SET_DENORMALS_ZERO_MODE _MM_SET_ROUNDING_MODE fesetround fesetenv "
            "feupdateenv feenableexcept fedisableexcept __builtin_ia32_ldmxcsr _MM_SET_EXCEPTION_MASK"
        ),
        "it would change the numerics of the whole model",
    ),
)
# Banned only when called or used as an attribute; as plain names they may well be a variable.
_CALLED_ONLY = _names(
    "time clock signal raise kill connect clone async thread promise terminate puts exit system remove"
)
_ATTRIBUTES = _names(
    "constructor destructor ifunc section alias weakref cleanup init_priority __constructor__ __destructor__ __ifunc__"
)


class Refusal(NamedTuple):
    """Which rule was broken, where, and what would be accepted."""

    rule: str
    line: int
    detail: str

    @property
    def reason(self) -> str:
        """The verdict's sentence."""
        where = f"line {self.line}: " if self.line else ""
        return f"refused by rule '{self.rule}': {where}{self.detail}"


class _Token(NamedTuple):
    kind: str  # name, string, other, directive
    text: str
    line: int


_LEXER = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
    | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
    | (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    | (?P<name>[^\W\d]\w*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def screen(candidate: Candidate) -> Refusal | None:
    """The first rule a candidate breaks, or None. Languages without a screen of their own pass."""
    if candidate.language is Language.CPP:
        return screen_cpp(candidate.source)
    return None


def screen_cpp(source: str) -> Refusal | None:
    """Rules of the cpp language."""
    if len(source.encode("utf-8", errors="surrogatepass")) > MAX_SOURCE_BYTES:
        return Refusal("source size", 0, f"the source is over {MAX_SOURCE_BYTES >> 10} KiB")
    if re.search("[\ud800-\udfff]", source):
        return Refusal("source text", 0, "the source contains half a surrogate pair, which UTF-8 cannot hold")
    if "\0" in source:
        return Refusal("source text", 0, "the source contains a NUL character")
    tokens = list(_tokens(source))
    for check in (_headers, _names_used, _attributes, _entry_point):
        refusal = check(tokens)
        if refusal is not None:
            return refusal
    return None


def _tokens(source: str) -> Iterator[_Token]:
    # Spliced lines are joined as the compiler joins them; the line count is kept by the newlines put back after.
    joined = re.sub(r"((?:[^\n]*\\\r?\n)+)([^\n]*)", _unsplice, source)
    line = 1
    for match in _LEXER.finditer(joined):
        kind, text = match.lastgroup or "other", match.group()
        if kind == "tag":
            kind = "raw"
        if kind == "name":
            yield _Token("name", text, line)
        elif kind in ("string", "raw"):
            yield _Token("string", text, line)
        elif kind in ("other", "number", "character"):
            yield _Token("other", text, line)
        line += text.count("\n")


def _unsplice(match: re.Match[str]) -> str:
    spliced = match.group(1)
    return re.sub(r"\\\r?\n", "", spliced) + match.group(2) + "\n" * spliced.count("\n")


def _headers(tokens: list[_Token]) -> Refusal | None:
    rule = "headers"
    for i, token in enumerate(tokens):
        is_hash = token.text == "#" or (
            token.text == "%" and i + 1 < len(tokens) and tokens[i + 1].text == ":"
        )
        if not is_hash or (i and tokens[i - 1].line == token.line and tokens[i - 1].text != ":"):
            continue
        line = [t for t in tokens[i + 1 : i + 40] if t.line == token.line and t.text != ":"]
        directive = line[0].text if line else ""
        if directive in ("include_next", "import", "embed"):
            return Refusal(
                rule, token.line, f"#{directive} is not accepted; use #include of a standard header"
            )
        if directive != "include":
            continue
        name = "".join(t.text for t in line[1:])
        header = name[1:-1] if name[:1] in '<"' and len(name) > 2 else ""
        if header not in ALLOWED_HEADERS:
            shown = header or name or "nothing"
            return Refusal(
                rule,
                token.line,
                f"#include of {shown} is not accepted; kg.h is included already, and {_some_headers()}",
            )
    return None


def _some_headers() -> str:
    return "plain C++ headers such as <cmath>, <vector>, <algorithm>, <immintrin.h>, <omp.h> are allowed"


def _names_used(tokens: list[_Token]) -> Refusal | None:
    for i, token in enumerate(tokens):
        if token.kind != "name":
            continue
        following = tokens[i + 1].text if i + 1 < len(tokens) else ""
        previous = tokens[i - 1].text if i else ""
        for ban in _BANS:
            if token.text not in ban.names:
                continue
            if token.text in _CALLED_ONLY and not (following == "(" or previous == ":"):
                continue
            if token.text == "num_threads" and following != "(":
                continue
            return Refusal(ban.rule, token.line, f"`{token.text}` is not accepted; {ban.instead}")
        if token.text == "system" and following == "(":
            return Refusal(_BANS[1].rule, token.line, f"`system` is not accepted; {_BANS[1].instead}")
    return None


def _attributes(tokens: list[_Token]) -> Refusal | None:
    for i, token in enumerate(tokens):
        if token.text not in _ATTRIBUTES:
            continue
        before = [t.text for t in tokens[max(0, i - 12) : i]]
        if "__attribute__" in before or "__attribute" in before or "gnu" in before:
            detail = f"attribute `{token.text}` is not accepted; all work belongs in kg_forward and kg_pack"
            return Refusal("no code outside the entry points", token.line, detail)
    return None


def _entry_point(tokens: list[_Token]) -> Refusal | None:
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

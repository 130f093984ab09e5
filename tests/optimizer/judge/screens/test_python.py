"""The Python screen: each rule refuses by name and line, and what honest kernels do is accepted."""

import textwrap

import pytest

from optimizer.candidate import Candidate, Language
from optimizer.judge.screens import MAX_SOURCE_BYTES, screen
from optimizer.judge.screens.python import screen_python

HONEST = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
        return out
"""

COUNTER = """
class Counts:
    def __init__(self):
        {}
    def _count(self):
        self.count += 1
    def forward(self):
        {}
"""


def refuse(extra: str, *, language: Language = Language.TRITON) -> tuple[str, int]:
    refusal = screen(Candidate(language, f"# candidate\n{textwrap.dedent(extra)}\n{HONEST}"))
    assert refusal is not None
    assert refusal.rule in refusal.reason
    return refusal.rule, refusal.line


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("import os", "imports", 2),
        ("import torch, subprocess", "imports", 2),
        ("from ctypes import CDLL", "imports", 2),
        ("import importlib.util", "imports", 2),
        ("from . import answer", "imports", 2),
        ("from torch import *", "imports", 2),
        ("import torch\nenv = torch.os.environ", "imports", 3),
        ("import torch\nt = torch\nr = t.utils.cpp_extension.subprocess.run", "imports", 4),
        ("from torch.utils.cpp_extension import load_inline", "imports", 2),
        ("import torch\ns = torch.cuda.Stream()", "no streams, events or graphs", 3),
        ("from torch.cuda import Event as E", "no streams, events or graphs", 2),
        ("import torch.cuda as c\ng = c.CUDAGraph()", "no streams, events or graphs", 3),
        ("def f(s, e):\n    s.wait_stream(e)", "no streams, events or graphs", 3),
        ("import torch.multiprocessing as mp", "no threads or processes", 2),
        ("async def f():\n    return 1", "no threads or processes", 2),
        ("import torch\ntorch.cuda.synchronize = lambda: None", "no patching", 3),
        ("import torch\ntorch.Tensor.__add__ = max", "no patching", 3),
        ("from torch import Tensor as T\nT.add = max", "no patching", 3),
        ("import torch\ndel torch.cuda.synchronize", "no patching", 3),
        ("import torch\nsetattr(torch, 'add', max)", "no patching", 3),
        ("def f(x):\n    type(x).add = max", "no patching", 3),
        ("import torch\nlib = torch.library.Library('aten', 'IMPL')", "no patching", 3),
        ("double_kernel.run = print_nothing = None", "no patching", 2),
        ("exec('1')", "no dynamic code", 2),
        ("f = eval", "no dynamic code", 2),
        ("m = __import__('os')", "no dynamic code", 2),
        ("def f(x, name):\n    return getattr(x, name)", "no dynamic code", 3),
        ("look = getattr", "no dynamic code", 2),
        ("T = type('T', (), {})", "no dynamic code", 2),
        ("class T(metaclass=list):\n    pass", "no dynamic code", 2),
        ("from operator import attrgetter", "no dynamic code", 2),
        ("def f(x):\n    return x.__class__.__mro__", "no introspection", 3),
        ("def f(x):\n    return getattr(x, '__dict__')", "no introspection", 3),
        ("def f(g):\n    return g.gi_frame.f_back", "no introspection", 3),
        ("g = globals()", "no introspection", 2),
        ("b = __builtins__", "no introspection", 2),
        ("open('/etc/passwd')", "no files or output", 2),
        ("import torch\nx = torch.load('answers.pt')", "no files or output", 3),
        ("import numpy as np\nx = np.fromfile('answers')", "no files or output", 3),
        ("import torch\nclass Lazy(torch.Tensor):\n    pass", "no tensor subclasses", 3),
        ("class A:\n    def __torch_function__(self): ...", "no tensor subclasses", 3),
        ("class A:\n    def __del__(self): ...", "no hooks into objects", 3),
        ("def f(x):\n    return x.as_subclass(int)", "no tensor subclasses", 3),
        ("import torch\n@torch.compile\ndef f(x):\n    return x", "no torch.compile", 3),
        ("import torch\ng = torch.jit.script", "no torch.compile", 3),
        ("try:\n    x = f()\nexcept ValueError:\n    x = 2", "no fallback", 4),
        ("try:\n    import torch\n    x = torch.ones(1)\nexcept ImportError:\n    pass", "no fallback", 5),
        ("__name__ = '__main__'", "no dynamic code", 2),
        ("from contextlib import suppress", "no fallback", 2),
        ("import torch\nbusy = torch.cuda.is_current_stream_capturing", "no probing of the judge", 3),
        ("import triton\nt = triton.testing.do_bench", "no clocks", 3),
        ("def f(tl):\n    return tl.extra.cuda.globaltimer()", "no clocks", 3),
        ("import torch\nc = torch._C", "no private parts of torch and triton", 3),
        ("def f(x):\n    return x.untyped_storage()", "no foreign memory", 3),
        ("import torch\nx = torch.frombuffer(b'1234')", "no foreign memory", 3),
        ("cache = {}\ndef f(x):\n    return cache[x.data_ptr()]", "no caching between calls", 4),
        ("cache = {}\ndef f(x):\n    return cache.get((x.data_ptr(), 1))", "no caching between calls", 4),
        ("cache = {}\ndef f(x):\n    p = x.data_ptr()\n    return p in cache", "no caching between calls", 5),
        ("def f(self, x):\n    self.seen = x.data_ptr()", "no caching between calls", 3),
        ("def f(x, y):\n    return id(x)", "no caching between calls", 3),
        ("def f(x, y):\n    return x._version == y", "no caching between calls", 3),
        ("def f(self, x):\n    return self.last is x", "no caching between calls", 3),
        ("import torch\ndef f(self, x):\n    return torch.equal(x, self.last)", "no caching between calls", 4),
        ("def f(self):\n    self.calls += 1", "no caching between calls", 3),
        ("n = 0\ndef f():\n    global n\n    n += 1", "no caching between calls", 5),
        (COUNTER.format("self._count()", "self._count()"), "no caching between calls", 7),
        (COUNTER.format("self._count()", "f = self._count"), "no caching between calls", 7),
        (COUNTER.format("self.f = lambda: self._count()", "self.f()"), "no caching between calls", 7),
        (COUNTER.format("self._count()", "getattr(self, '_count')()"), "no caching between calls", 7),
        (COUNTER.format("pass", "pass"), "no caching between calls", 7),
        ("class A:\n    def forward(self, x):\n        k(x, self.out)\n        return self.out",
         "no caching between calls", 5),
        ("class A:\n    def forward(self, x):\n        C[x.shape] = x + 1\n        return C[x.shape].clone()\nC = {}",
         "no caching between calls", 5),
        ("class A:\n    def forward(self, x):\n        out = self.out\n        out.copy_(x)\n        return out, 1",
         "no caching between calls", 6),
        ("class A:\n    def forward(self, x):\n        self.out = y = x + 1\n        return self.out.view(-1)",
         "no caching between calls", 5),
        ("class A:\n    def forward(s, x):\n        y = x * 2\n        C[0] = y\n        return y\nC = {}",
         "no caching between calls", 6),
    ],
)  # fmt: skip
def test_rule(text: str, rule: str, line: int) -> None:
    assert refuse(text) == (rule, line)


@pytest.mark.parametrize(
    "text",
    [
        "'''exec eval torch.cuda.Stream os.environ'''  # import os",
        "import contextlib, dataclasses, functools, itertools, math, typing, enum",
        "from __future__ import annotations",
        "import torch.nn as nn, torch.nn.functional as F\nfrom torch.nn.functional import silu",
        "from triton.language.extra import libdevice\nfrom triton.tools.tensor_descriptor import TensorDescriptor",
        "try:\n    from triton.language.extra import libdevice\nexcept ImportError:\n    libdevice = None",
        "try:\n    import triton\n    found = True\nexcept ImportError:\n    found = False",
        "def f(x):\n    try:\n        return x\n    except ValueError as e:\n        raise TypeError('x') from e",
        "if __name__ == '__main__':\n    import time\n    print(time.time())",
        "def f(x):\n    try:\n        return x\n    finally:\n        pass",
        "def f(x):\n    return x.data_ptr() % 16 == 0",
        COUNTER.format("self._count()", "pass"),
        COUNTER.format("self._more()", "pass") + "    def _more(self):\n        self._count()\n",
        "import torch\ndef f(xs):\n    ptrs = [x.data_ptr() for x in xs]\n    return torch.tensor(ptrs)",
        "import torch\nsms = torch.cuda.get_device_properties(0).multi_processor_count",
        "import triton\np = triton.runtime.driver.active.utils.get_device_properties(0)",
        "import torch\ndef f(x):\n    with torch.cuda.device(x.device), torch.no_grad():\n        return x",
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
        "import torch\ndef f(a, b, s):\n    return torch._scaled_mm(a, b, s, s, out_dtype=torch.bfloat16)",
        "def f(input, id, time, hash, type):\n    return input + id + time",
        "def f(self, i):\n    setattr(self, f'w{i}', 1)\n    return getattr(self, f'w{i}')",
        "def f(x):\n    return getattr(x, 'shape')[0]",
        "from functools import lru_cache\n@lru_cache\ndef block(n):\n    return 1 << n.bit_length()",
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Plan:\n    block: int = 64",
        "import torch\n_scratch = {}\ndef f(x):\n    s = _scratch.get(x.shape)\n    if s is None:\n"
        "        s = _scratch[x.shape] = torch.empty_like(x)\n    return s",
        "def f(self, w):\n    if self.w is None:\n        self.w = w.t().contiguous()\n    return self.w",
        "import torch\nMODE = 1\ndef f(self, x):\n    return self.t is torch.half or self.m is MODE",
        "class Rope:\n    def forward(self, n):\n        return self.cos[:n], self.sin[:n]",
        "class A:\n    def forward(self, x):\n        k(x, self.scratch)\n        return self.scratch.sum(0)",
        "class A:\n    def forward(self, x):\n        k(x, self.scratch)\n        return self.scratch.clone()",
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        ctx.save_for_backward(x)\n        return x.clone()",
        "import torch\nassert torch.__version__ >= '2'\nif __name__ == '__main__':\n    pass",
        "import torch\nclass A(torch.nn.Module):\n    def forward(self, x):\n        return self.act(x) + self.bias",
    ],
)
def test_honest_text_passes(text: str) -> None:
    assert screen_python(f"{text}\n{HONEST}") is None
    assert screen_python(f"{HONEST}\n{text}") is None


def kernel_and(model: str) -> str:
    return HONEST[: HONEST.index("class ModelNew")] + textwrap.dedent(model)


@pytest.mark.parametrize(
    "source",
    [
        HONEST,
        HONEST.replace("@triton.jit", "@triton.autotune([triton.Config({})], key=['n'])\n@triton.jit"),
        HONEST.replace("@triton.jit", "@triton.jit(do_not_specialize=['n'])"),
        HONEST.replace("@triton.jit", "from triton import jit as compiled\n@compiled"),
        HONEST.replace("@triton.jit\n", "").replace("class", "double_kernel = triton.jit(double_kernel)\nclass"),
        kernel_and(
            """
            TABLE = {"double": double_kernel}
            def launch(x, out):
                TABLE["double"][(1,)](x, out, x.numel(), BLOCK=128)
            class Part(torch.nn.Module):
                def forward(self, x):
                    out = torch.empty_like(x)
                    launch(x, out)
                    return out
            class ModelNew(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.part = Part()
                def forward(self, x):
                    return self.part(torch.nn.functional.relu(x))
            """
        ),
        kernel_and(
            """
            class Base(torch.nn.Module):
                def forward(self, x):
                    return self.launch(x)
                def launch(self, x):
                    out = torch.empty_like(x)
                    double_kernel[(1,)](x, out, x.numel(), BLOCK=128)
                    return out
            class ModelNew(Base):
                pass
            """
        ),
    ],
)  # fmt: skip
def test_ways_to_launch_a_kernel(source: str) -> None:
    assert screen(Candidate(Language.TRITON, source)) is None


@pytest.mark.parametrize(
    ("source", "rule", "words"),
    [
        ("", "entry point", "no class ModelNew"),
        ("def f(:", "syntax", "not Python"),
        ("x = " + "(" * 5000 + ")" * 5000, "syntax", ""),
        ("x = " + "-" * 3000 + "1", "syntax", "nested too deeply"),
        ("x" + ".y" * 3000, "syntax", "nested too deeply"),
        (HONEST + " " * MAX_SOURCE_BYTES, "source size", "KiB"),
        (HONEST + "\0", "source text", "NUL"),
        (HONEST + "# \udcff", "source text", "UTF-8"),
        (HONEST.replace("torch.nn.Module", "Model"), "entry point", "inherits from `Model`"),
        (HONEST.replace("(torch.nn.Module)", ""), "entry point", "inherits from `object`"),
        (HONEST.replace("def forward", "def run"), "entry point", "no forward"),
        (HONEST.replace("@triton.jit", ""), "custom kernel", "there is none"),
        (HONEST.replace("tl.store(", "max("), "custom kernel", "stores nothing"),
        (
            kernel_and("class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + x"),
            "custom kernel",
            "never reached",
        ),
        (
            kernel_and(
                "class ModelNew(torch.nn.Module):\n    def unused(self, x):\n        double_kernel[(1,)](x, x, 1, 1)\n"
                "    def forward(self, x):\n        return x + x"
            ),
            "custom kernel",
            "never reached",
        ),
    ],
)
def test_what_is_no_candidate(source: str, rule: str, words: str) -> None:
    refusal = screen_python(source)
    assert refusal is not None
    assert refusal.rule == rule
    assert words in refusal.reason


def test_the_first_line_is_named() -> None:
    assert refuse("x = 1\nimport os\nimport sys\nexec('1')") == ("imports", 3)

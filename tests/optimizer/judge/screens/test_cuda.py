"""The CUDA screen: sources are found in string constants, each rule refuses by name and line of the file."""

import textwrap
import time

import pytest

from optimizer.candidate import Candidate, Language
from optimizer.judge.screens import screen
from optimizer.judge.screens.cuda import screen_cuda

KERNEL = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  twice<<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""


def candidate(kernel: str = KERNEL, *, sources: str = "SOURCE", extra: str = "") -> Candidate:
    file = f'''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""{kernel}"""
{textwrap.dedent(extra)}
extension = load_inline("twice", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources={sources},
                        functions=["run"], extra_cuda_cflags=["-O3"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)
'''
    return Candidate(Language.CUDA, file)


@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL,
        "#include <cuda_fp16.h>\n#include <mma.h>\n#include <cub/cub.cuh>\n#include <cooperative_groups/reduce.h>"
        + KERNEL,
        '__device__ float f(float x) { asm("tanh.approx.f32 %0, %0;" : "+f"(x)); return x; }' + KERNEL,
        "// std::thread fork() clock64()\n" + KERNEL,
        "static std::map<int, std::pair<int, int>> blocks; static torch::Tensor scratch;" + KERNEL,
        KERNEL.replace("torch::empty_like(x)", "x.clone()"),  # elsewhere a system call, here a method
    ],
)  # fmt: skip
def test_honest_kernels_pass(kernel: str) -> None:
    assert screen(candidate(kernel)) is None


@pytest.mark.parametrize(
    ("sources", "extra"),
    [
        ("[SOURCE]", ""),
        ("HEAD + SOURCE", 'HEAD = "#define N 3\\n"'),
        ("f'#define N {n}\\n{SOURCE}'", "n = len('abc')"),
        ('"\\n".join([SOURCE, TAIL])', 'TAIL = "// end"'),
        ("textwrap.dedent(SOURCE).strip()", "import textwrap"),
        ("SOURCE.replace('255', str(BLOCK - 1))", "BLOCK = 256"),
        ("SOURCE % 3", ""),
        ("Parts.main", "class Parts:\n    main = SOURCE"),
    ],
)
def test_ways_to_write_a_source(sources: str, extra: str) -> None:
    assert screen(candidate(sources=sources, extra=extra)) is None
    bad = candidate(KERNEL + "int f() { return fork(); }", sources=sources, extra=extra)
    refusal = screen(bad)
    assert refusal is not None
    assert refusal.rule == "no system calls or processes"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("#include <thread>", "headers"),
        ("#include </proc/self/maps>", "headers"),
        ("#include <torch/../../secret.h>", "headers"),
        ("#embed <torch/extension.h>", "headers"),
        ("void f() { std::thread t; }", "no threads or processes"),
        ("void f(cudaStream_t* s) { cudaStreamCreate(s); }", "no streams, events or graphs"),
        ("auto s = at::cuda::getStreamFromPool();", "no streams, events or graphs"),
        ("void f() { cudaGraphLaunch(g, s); }", "no streams, events or graphs"),
        ("bool f() { return cudaStreamIsCapturing(s, &c); }", "no probing of the judge"),
        ("__device__ long f() { return clock64(); }", "no clocks"),
        ('__device__ void f() { asm("mov.u64 %0, %globaltimer;"); }', "no clocks"),
        ("void f() { cudaIpcOpenMemHandle(&p, h, 1); }", "no foreign memory"),
        ('void f() { PyRun_SimpleString("import os"); }', "no calls back into Python"),
        ('void f() { py::exec("import os"); }', "no calls back into Python"),
        ("static std::unordered_map<void*, std::vector<at::Tensor>> kept;", "no caching between calls"),
        ("TORCH_LIBRARY_IMPL(aten, CUDA, m) {}", "no patching"),
        ("TORCH_LIBRARY_FRAGMENT(aten, m) {}", "no patching"),
        ('static torch::Library library(torch::Library::IMPL, "aten", k, __FILE__, 1);', "no patching"),
        ("void f() { at::addGlobalCallback(at::RecordFunctionCallback(g)); }", "no patching"),
        ("#define JOIN(a, b) a##b", "no pasted names"),
        ("#define START thr##ead", "no pasted names"),
        ("void f() { std::exit(0); }", "no signals, exits or jumps out"),
        ("__attribute__((constructor)) void f() {}", "no code outside the entry points"),
    ],
)
def test_rule(text: str, rule: str) -> None:
    refusal = screen(candidate(f"\n{text}\n{KERNEL}"))
    assert refusal is not None
    assert (refusal.rule, refusal.line) == (rule, 5)
    assert screen_cuda(KERNEL) is None


def test_sources_must_be_readable() -> None:
    refusal = screen(candidate(sources="make()", extra="def make():\n    return SOURCE"))
    assert refusal is not None
    assert refusal.rule == "readable sources"
    assert refusal.line == 20


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (KERNEL.replace("__global__", ""), "there is none"),
        (KERNEL.replace("__global__", "// __global__"), "there is none"),
    ],
)
def test_extension_without_a_kernel(kernel: str, words: str) -> None:
    refusal = screen(candidate(kernel))
    assert refusal is not None
    assert refusal.rule == "custom kernel"
    assert words in refusal.reason


def test_extension_that_is_never_used() -> None:
    file = candidate().source.replace("return extension.run(x)", "return x + x")
    refusal = screen(Candidate(Language.CUDA, file))
    assert refusal is not None
    assert refusal.rule == "custom kernel"
    assert "never reached" in refusal.reason


@pytest.mark.parametrize("text", ["/*" * 100_000, 'R"((' * 50_000, "x\\" * 100_000, '"' * 200_000])
def test_unclosed_text_costs_no_quadratic_time(text: str) -> None:
    start = time.process_time()
    screen_cuda(text)
    assert (
        time.process_time() - start < 10
    )  # half a second; a lexer that looks for each end anew took a minute


def test_sources_that_double_without_end_are_refused() -> None:
    lines = [f"A{i} = A{i - 1} + A{i - 1}" for i in range(1, 60)]
    refusal = screen(candidate(sources="A59", extra="\n".join(["A0 = SOURCE", *lines])))
    assert refusal is not None
    assert refusal.rule == "readable sources"

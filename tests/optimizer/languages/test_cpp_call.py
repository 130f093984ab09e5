"""Calling an accepted kernel in process: values, strides, packing, checks, counting."""

from pathlib import Path

import pytest
import torch

from optimizer.languages.cpp import CppBuilder
from optimizer.languages.cpp_call import CppKernel, KernelDeclined, KernelUnloadable, WrongArgument
from optimizer.languages.fenv import DEFAULT_MXCSR, control_word, describe_change
from tests.optimizer.fixtures import kernels


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> CppBuilder:
    torch.set_num_threads(1)
    return CppBuilder(tmp_path_factory.mktemp("cache"))


def _kernel(builder: CppBuilder, source: str) -> CppKernel:
    return CppKernel.load(builder.build_source(source).path)


def test_values_and_count(builder: CppBuilder) -> None:
    gate, up = torch.randn(2, 1, 64), torch.randn(2, 1, 64)
    bound = _kernel(builder, kernels.silu()).bind([], [gate, up], [gate])
    (first,) = bound(gate, up)
    (second,) = bound(up, gate)
    torch.testing.assert_close(first, torch.nn.functional.silu(gate) * up)
    torch.testing.assert_close(second, torch.nn.functional.silu(up) * gate)
    assert first.data_ptr() != second.data_ptr()
    assert bound.calls == 2


def test_outputs_have_the_strides_they_were_bound_for(builder: CppBuilder) -> None:
    source = f"""{kernels.SIGNATURE} {{
      for (int64_t i = 0; i < out[0].size[0]; ++i)
        for (int64_t j = 0; j < out[0].size[1]; ++j)
          ((float*)out[0].data)[i * out[0].stride[0] + j * out[0].stride[1]] =
              2 * ((const float*)in[0].data)[i * in[0].stride[0] + j * in[0].stride[1]];
      return KG_OK;
    }}"""
    x = torch.randn(5, 3).t()[:, 1:]
    like = torch.empty_strided((3, 4), (1, 3))
    bound = _kernel(builder, source).bind([], [x], [like])
    (result,) = bound(x)
    assert result.stride() == (1, 3)
    torch.testing.assert_close(result, 2 * x)


def test_wrong_arguments_are_named(builder: CppBuilder) -> None:
    x = torch.randn(1, 1, 64)
    bound = _kernel(builder, kernels.silu()).bind([], [x, x], [x])
    with pytest.raises(WrongArgument, match=r"input 1 .*float64"):
        bound(x, x.double())
    with pytest.raises(WrongArgument, match=r"\(1, 1, 32\)"):
        bound(x[..., :32], x)
    with pytest.raises(WrongArgument, match="input 0"):
        bound(torch.randn(1, 1, 128)[..., ::2], x)
    with pytest.raises(WrongArgument, match="2 inputs"):
        bound(x)
    assert bound.calls == 0


def test_strides_of_axes_of_length_one_do_not_matter(builder: CppBuilder) -> None:
    x = torch.randn(1, 1, 64)
    bound = _kernel(builder, kernels.silu()).bind([], [x, x], [x])
    odd = torch.as_strided(x, (1, 1, 64), (7, 3, 1))
    torch.testing.assert_close(bound(odd, x)[0], torch.nn.functional.silu(x) * x)


def test_a_declined_shape_is_an_error_of_its_own(builder: CppBuilder) -> None:
    x = torch.randn(1, 64)
    bound = _kernel(builder, kernels.silu("return KG_UNSUPPORTED;")).bind([], [x, x], [x])
    with pytest.raises(KernelDeclined, match=r"\(1, 64\)"):
        bound(x, x)
    assert bound.calls == 0


def test_packing_is_shared_and_repeatable(builder: CppBuilder) -> None:
    kernel = _kernel(builder, kernels.LINEAR_PACKED)
    weight = torch.randn(8, 16)
    packed = kernel.pack([weight])
    assert packed.nbytes == weight.numel() * 4
    assert packed.address is not None
    assert packed.address % 4096 == 0
    one, four = torch.randn(1, 1, 16), torch.randn(4, 1, 16)
    first = kernel.bind([weight], [one], [torch.empty(1, 1, 8)], packed=packed)
    second = kernel.bind([weight], [four], [torch.empty(4, 1, 8)], packed=packed)
    torch.testing.assert_close(first(one)[0], one @ weight.T)
    torch.testing.assert_close(second(four)[0], four @ weight.T)
    weight.mul_(3.0)
    packed.repack()
    torch.testing.assert_close(second(four)[0], four @ weight.T)


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"not a library", "cannot load"), (None, "cannot load")],
    ids=["damaged", "missing"],
)
def test_unloadable_libraries(tmp_path: Path, content: bytes | None, word: str) -> None:
    path = tmp_path / "kernel.so"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(KernelUnloadable, match=word):
        CppKernel.load(path)


def test_a_library_without_the_entry_point(builder: CppBuilder) -> None:
    with pytest.raises(KernelUnloadable, match="kg_forward"):
        _kernel(builder, 'extern "C" int something_else() { return 0; }')


def test_floating_point_control_is_read_and_described() -> None:
    before = control_word()
    assert torch.set_flush_denormal(True)
    try:
        assert "flush-to-zero" in describe_change(before, control_word())
    finally:
        torch.set_flush_denormal(False)
    assert describe_change(before, control_word()) == ""
    assert describe_change(DEFAULT_MXCSR, DEFAULT_MXCSR | 0x2000).endswith("(rounding mode)")

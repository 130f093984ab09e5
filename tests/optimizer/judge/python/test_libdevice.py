"""CUDA's device library by numpy and torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from optimizer.judge.python.hints import branch_hint, hint
from optimizer.judge.python.libdevice import NotInterpreted, find

_VALUES = torch.linspace(0.05, 0.95, 19)


@pytest.mark.parametrize(
    ("symbol", "same"),
    [
        ("__nv_tanhf", torch.tanh),
        ("__nv_erff", torch.erf),
        ("__nv_erfinvf", torch.erfinv),
        ("__nv_expm1f", torch.expm1),
        ("__nv_log1pf", torch.log1p),
        ("__nv_rsqrtf", torch.rsqrt),
        ("__nv_frsqrt_rn", torch.rsqrt),
        ("__nv_fast_expf", torch.exp),
        ("__nv_lgammaf", torch.lgamma),
        ("__nv_normcdff", torch.special.ndtr),
        ("__nv_saturatef", lambda x: x.clamp(0, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_are_torchs(
    symbol: str, same: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    values = _VALUES.to(dtype)
    got = find(symbol)(values.numpy())
    assert got.dtype == values.numpy().dtype
    torch.testing.assert_close(torch.from_numpy(got), same(values))


def test_rounding() -> None:
    values = np.array([-2.5, -0.5, 0.5, 1.5, 2.5], dtype=np.float32)
    assert find("__nv_roundf")(values).tolist() == [-3, -1, 1, 2, 3]
    assert find("__nv_rintf")(values).tolist() == [-2, 0, 0, 2, 2]
    assert find("__nv_float2int_rz")(values).tolist() == [-2, 0, 0, 1, 2]
    assert find("__nv_float2int_rd")(values).tolist() == [-3, -1, 0, 1, 2]


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(NotInterpreted, match="__nv_byte_perm; judge this kernel on a GPU"):
        find("__nv_byte_perm")


def test_reasons_that_come_of_there_being_no_gpu_get_a_hint() -> None:
    assert "x.device" in hint("it raised AssertionError: Torch not compiled with CUDA enabled at line 3")
    assert "inline assembly" in hint("it raised NotImplementedError: inline_asm not supported")
    assert "x.device" in hint("it raised AssertionError: x must be on the GPU at line 9")
    assert hint("it raised ZeroDivisionError: division by zero") == ""
    assert "whatever the device" in branch_hint("if x.device.type == 'cuda': launch(x)")
    assert branch_hint("launch(x)") == ""

"""The process's numeric state: set to a written-down configuration before an evaluation, compared after it.

TF32 is off for matmul and on for cuDNN, as in the paper; everything else is torch's default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch

from optimizer.languages.fenv import control_word, describe_change


@dataclass(frozen=True)
class NumericState:
    """Everything in torch and the processor that can change a result or a time without changing the code."""

    threads: int
    default_dtype: str
    default_device: str
    grad: bool
    matmul_precision: str
    matmul_tf32: bool
    cudnn_tf32: bool
    deterministic: bool
    mkldnn: bool
    control: int

    @classmethod
    def capture(cls) -> NumericState:
        """The present state."""
        return cls(
            threads=torch.get_num_threads(),
            default_dtype=str(torch.get_default_dtype()),
            default_device=str(torch.get_default_device()),
            grad=torch.is_grad_enabled(),
            matmul_precision=torch.get_float32_matmul_precision(),
            matmul_tf32=torch.backends.cuda.matmul.allow_tf32,
            cudnn_tf32=torch.backends.cudnn.allow_tf32,
            deterministic=torch.are_deterministic_algorithms_enabled(),
            mkldnn=bool(torch.backends.mkldnn.enabled),
            control=control_word(),
        )

    def changes(self, later: NumericState) -> tuple[str, ...]:
        """What differs in ``later``, one phrase each."""
        before, after = asdict(self), asdict(later)
        control = describe_change(before.pop("control"), after.pop("control"))
        changed = [
            f"{name} {before[name]} -> {after[name]}" for name in before if before[name] != after[name]
        ]
        return tuple(changed + ([control] if control else []))


@contextmanager
def written_down(threads: int) -> Iterator[NumericState]:
    """Put the judge's configuration in place and give the old one back afterwards."""
    old = NumericState.capture()
    _apply(
        threads=threads,
        dtype=torch.float32,
        device="cpu",
        grad=False,
        precision="highest",
        matmul_tf32=False,
        cudnn_tf32=True,
        deterministic=False,
    )
    try:
        yield NumericState.capture()
    finally:
        _apply(
            threads=old.threads,
            dtype=getattr(torch, old.default_dtype.removeprefix("torch.")),
            device=old.default_device,
            grad=old.grad,
            precision=old.matmul_precision,
            matmul_tf32=old.matmul_tf32,
            cudnn_tf32=old.cudnn_tf32,
            deterministic=old.deterministic,
        )


def _apply(
    *,
    threads: int,
    dtype: torch.dtype,
    device: str,
    grad: bool,
    precision: str,
    matmul_tf32: bool,
    cudnn_tf32: bool,
    deterministic: bool,
) -> None:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    if str(torch.get_default_device()) != device:
        torch.set_default_device(device)
    torch.set_grad_enabled(grad)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cuda.matmul.allow_tf32 = matmul_tf32
    torch.backends.cudnn.allow_tf32 = cudnn_tf32
    torch.use_deterministic_algorithms(deterministic)

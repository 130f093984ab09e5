"""The numerical rules. Every threshold of correctness is in this file.

``strict`` compares with the double-precision answer ``r``, knowing eager's own answer ``e`` at the task's dtype:

- root mean square over the output: ``rms(c - r) <= K * max(rms(e - r), floor * rms(r))`` with K = 2 for 16-bit
  tasks and 4 for fp32. A bf16 kernel that drops one of 1024 products, accumulates in bf16 or quantises its
  weights to 8 bits lies beyond it; one that sums in another order does not.
- each element, by rows (last axis), relative to its scale ``s = |r| + mean |r| of the row``:
  ``|c - r| / s <= 4 * max(largest |e - r| / s of the row, floor)`` (8 for fp32), so that one wrong element or row
  among many right ones is seen, and outliers, whose rounding is coarse, do not excuse the others.
- ``floor`` is what correct rounding costs: 2^-9 for bf16, 2^-12 for fp16 (half a unit in the last place); 2^-20
  for fp32 (8 units: another summation order is no error).
- integers and booleans equal eager's or the double-precision answer, element by element.
- NaN and infinities lie where eager has them.

``paper`` is KernelBench's: 99 % of the elements within ``atol + rtol * |e|``, and relative L1 and L2 error at most 0.01
for fp32 (for 16-bit tasks, at most that or twice eager's own).

Timed calls have fresh inputs, too many for double precision; they are compared with eager's answers under the sum of
both allowances (see :class:`Allowance`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from extractor.schema import Tolerance
from optimizer.judge.settings import Profile

RMS_MULTIPLE = {torch.bfloat16: 2.0, torch.float16: 2.0, torch.float32: 4.0}
ELEMENT_MULTIPLE = {torch.bfloat16: 4.0, torch.float16: 4.0, torch.float32: 8.0}
FLOOR = {torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12, torch.float32: 2.0**-20}
PAPER_SHARE = 0.99
PAPER_RELATIVE = 0.01
# Fresh inputs of timed calls are other draws than those eager's error was measured on: its largest element may grow.
DRAW_SLACK = 2.0
# Integers may flip where eager's rounding ties; of timed calls, at most this share may differ from eager.
INTEGER_FLIPS = 0.02
_CHUNK = 1 << 18  # elements compared at a time


@dataclass(frozen=True)
class Comparison:
    """``error`` is the candidate's rms error over eager's own (floored); ``problem`` is empty if it is allowed."""

    error: float
    problem: str = ""


@dataclass(frozen=True)
class Truth:
    """One output of one trial: the double-precision answer and eager's."""

    exact: torch.Tensor
    eager: torch.Tensor

    @property
    def is_float(self) -> bool:
        return self.eager.dtype.is_floating_point

    def compare(self, got: torch.Tensor, profile: Profile, tolerance: Tolerance) -> Comparison:
        """Judge one output; shape and dtype are right already."""
        if not self.is_float:
            wrong = (got != self.eager) & (got != self.exact.to(got.dtype))
            share = float(wrong.double().mean()) if got.numel() else 0.0
            return Comparison(0.0, _where(wrong, got, self.eager, f"{share:.1%} of the elements differ"))
        finite = torch.isfinite(self.eager)
        if problem := _finite_problem(got, self.eager, finite):
            return Comparison(float("inf"), problem)
        if profile is Profile.PAPER:
            return self._paper(got, finite, tolerance)
        return self._strict(got, finite)

    def _strict(self, got: torch.Tensor, finite: torch.Tensor) -> Comparison:
        dtype = self.eager.dtype
        floor, wide = FLOOR.get(dtype, 0.0), self.exact.dtype
        exact = torch.where(finite, self.exact, 0)
        error = _rows(torch.where(finite, got.to(wide) - exact, 0).abs())
        own = _rows(torch.where(finite, self.eager.to(wide) - exact, 0).abs())
        rows = _rows(exact)
        allowed_rms = max(_rms(own), floor * _rms(rows))
        ratio = _rms(error) / allowed_rms if allowed_rms else (0.0 if not bool(error.any()) else float("inf"))
        limit = RMS_MULTIPLE.get(dtype, 2.0)
        scale = _scale(rows)
        bound = (own / scale).amax(-1, keepdim=True).clamp_min(floor) if rows.numel() else own
        outside = (error > ELEMENT_MULTIPLE.get(dtype, 4.0) * bound * scale).view(got.shape)
        problem = ""
        if ratio > limit:
            share = float(outside.double().mean())
            problem = _where(outside if share else error.view(got.shape) == error.max(), got, self.exact, "")
            problem = f"its error is {ratio:.3g} times eager's own against fp64 (allowed: {limit:g}){problem}"
        elif bool(outside.any()):
            share = float(outside.double().mean())
            problem = _where(
                outside, got, self.exact, f"{share:.2%} of the elements are outside eager's error"
            )
        return Comparison(ratio, problem)

    def _paper(self, got: torch.Tensor, finite: torch.Tensor, tolerance: Tolerance) -> Comparison:
        wide = torch.float64
        reference = torch.where(finite, self.eager.to(wide), 0)
        error = torch.where(finite, got.to(wide) - reference, 0).abs()
        inside = error <= tolerance.atol + tolerance.rtol * reference.abs()
        share = float(inside.double().mean()) if got.numel() else 1.0
        if share < PAPER_SHARE:
            text = f"{share:.2%} of the elements are within tolerance (needed: {PAPER_SHARE:.0%})"
            return Comparison(0.0, _where(~inside, got, self.eager, text))
        own = (torch.where(finite, self.exact.to(wide) - reference, 0)).abs()
        for name, mine, eagers, size in (
            ("L1", error.sum(), own.sum(), reference.abs().sum()),
            ("L2", error.norm(), own.norm(), reference.norm()),
        ):
            allowed = PAPER_RELATIVE * float(size)
            if self.eager.dtype in (torch.bfloat16, torch.float16):
                allowed = max(allowed, 2 * float(eagers))
            if float(mine) > allowed:
                return Comparison(
                    0.0, f"its relative {name} error is {float(mine) / max(float(size), 1e-30):.3g}"
                )
        return Comparison(0.0)


@dataclass(frozen=True)
class Allowance:
    """How far one output of a timed call may be from eager's, relative to that answer's own size."""

    rms: float
    element: float
    is_float: bool

    @classmethod
    def of(cls, truths: Iterable[Truth], profile: Profile) -> Allowance:
        """From the trials of one output: candidate's allowance plus eager's own error, by the triangle inequality.

        The paper's profile bounds only the whole output; single elements may be anywhere.
        """
        rms = element = 0.0
        is_float = True
        for truth in truths:
            is_float = truth.is_float
            if not is_float:
                continue
            dtype, wide = truth.eager.dtype, truth.exact.dtype
            floor = FLOOR.get(dtype, 0.0)
            finite = torch.isfinite(truth.eager)
            exact = torch.where(finite, truth.exact, 0)
            own = _rows(torch.where(finite, truth.eager.to(wide) - exact, 0).abs())
            rows = _rows(exact)
            relative = own / _scale(rows)
            size = _rms(rows)
            own_rms = max(_rms(own) / size if size else 0.0, floor)
            own_element = max(float(relative.max()) if relative.numel() else 0.0, floor)
            if profile is Profile.PAPER:
                rms, element = max(rms, PAPER_RELATIVE + 2.0 * own_rms), float("inf")
                continue
            rms = max(rms, (RMS_MULTIPLE.get(dtype, 2.0) + 1.0) * own_rms)
            element = max(element, DRAW_SLACK * (ELEMENT_MULTIPLE.get(dtype, 4.0) + 1.0) * own_element)
        return cls(rms, element, is_float)

    def problem(self, got: torch.Tensor, eager: torch.Tensor) -> str:
        """Judge a stack ``[calls, *shape]`` of one output; empty if every call is allowed."""
        if not self.is_float:
            wrong = got != eager
            share = float(wrong.double().mean()) if got.numel() else 0.0
            if share <= INTEGER_FLIPS:
                return ""
            return _where(wrong, got, eager, f"{share:.1%} of the elements differ from eager's")
        # In chunks that stay in cache: fresh pages for large temporaries would cost more than the arithmetic.
        step = max(1, _CHUNK * eager.shape[0] // max(eager.numel(), 1))
        for first in range(0, eager.shape[0], step):
            mine, theirs = got[first : first + step], eager[first : first + step]
            if self._outside(mine, theirs) and (problem := self._explain(mine, theirs)):
                return problem
        return ""

    def _outside(self, got: torch.Tensor, eager: torch.Tensor) -> bool:
        """True if any of these calls is not allowed, or holds a NaN or infinity and needs a closer look."""
        expected = eager.float()
        error = torch.sub(got, expected).abs_()
        if not math.isfinite(float(error.sum())):
            return True
        relative = error.flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1).clamp_min_(1e-30)
        if float(relative.max()) > self.rms:
            return True
        return bool((_rows(error) > _scale(_rows(expected)).mul_(self.element)).any())

    def _explain(self, got: torch.Tensor, eager: torch.Tensor) -> str:
        """What is wrong with the first call that is not allowed; empty if none is after all."""
        for mine, theirs in zip(got, eager, strict=True):
            finite = torch.isfinite(theirs)
            if problem := _finite_problem(mine, theirs, finite):
                return problem
            expected = torch.where(finite, theirs.float(), 0)
            error = torch.where(finite, mine.float() - expected, 0).abs()
            relative = float(error.norm() / expected.norm().clamp_min(1e-30))
            if relative > self.rms:
                where = _where(error == error.max(), mine, theirs, "")
                return f"its relative error is {relative:.3g} (allowed: {self.rms:.2g}){where}"
            outside = (_rows(error) > self.element * _scale(_rows(expected))).view(mine.shape)
            if bool(outside.any()):
                return _where(outside, mine, theirs, "an element is outside eager's error")
        return ""


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """As [rows, last axis]; short rows are taken together, since the largest of few errors says little."""
    if tensor.dim() < 2 or tensor.shape[-1] < 16:
        return tensor.reshape(1, -1)
    return tensor.reshape(-1, tensor.shape[-1])


def _scale(rows: torch.Tensor) -> torch.Tensor:
    """What an element's error is relative to; never 0."""
    size = rows.abs()
    return (size + size.mean(-1, keepdim=True)).clamp_min(1e-30) if rows.numel() else size


def _rms(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt()) if tensor.numel() else 0.0


def _finite_problem(got: torch.Tensor, eager: torch.Tensor, finite: torch.Tensor) -> str:
    wrong = torch.isfinite(got) != finite
    if bool(wrong.any()):
        return _where(
            wrong,
            got,
            eager,
            f"{int(wrong.sum())} elements are NaN or infinite where eager's are not, or not where they are",
        )
    if not bool(finite.all()):
        same = (torch.isnan(got) == torch.isnan(eager)) & (torch.isnan(got) | finite | (got == eager))
        if not bool(same.all()):
            return _where(~same, got, eager, "NaN and infinity are not where eager has them")
    return ""


def _where(wrong: torch.Tensor, got: torch.Tensor, expected: torch.Tensor, text: str) -> str:
    """``text`` with the first wrong element, or empty if nothing is wrong."""
    places = wrong.nonzero()
    if not len(places):
        return ""
    index = tuple(int(part) for part in places[0])
    first, second = got[index].item(), expected[index].item()
    return f"{text}; at {list(index)} it is {_number(first)}, expected {_number(second)}"


def _number(value: float | int | bool) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

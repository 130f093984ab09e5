"""The numerical rules. Every threshold of correctness is in this file.

``strict`` compares with the double-precision answer ``r``, knowing eager's own answer ``e`` at the task's dtype:

- root mean square over the output: ``rms(c - r) <= K * max(rms(e - r), floor * rms(r))`` with K = 2 for 16-bit and
  8-bit tasks and 4 for fp32 and fp64. A bf16 kernel that drops one of 1024 products, accumulates in bf16 or quantises
  its weights to 8 bits lies beyond it; one that sums in another order does not.
- each element, by rows (last axis), relative to its scale ``s = |r| + mean |r| of the row``:
  ``|c - r| / s <= 4 * max(largest |e - r| / s of the row, floor)`` (8 for fp32 and fp64), so that one wrong element or
  row among many right ones is seen, and outliers, whose rounding is coarse, do not excuse the others.
- ``floor`` is what correct rounding costs, about a quarter of a unit in the last place: 2^-9 for bf16, 2^-12 for fp16,
  2^-5 for fp8 e4m3, 2^-4 for fp8 e5m2. 2^-20 for fp32 (8 units: another summation order is no error). 2^-40 for fp64,
  whose right answer is no better than eager's, so that all room for other orders of long sums is in the floor; a step
  in fp32 (2^-24) is beyond it.
- an output of fewer than ``FEW`` elements (a sum, say) may come out near zero, and eager's one error may be zero by
  luck: there eager's error and the answer's size are at least what they are over all trials.
- integers and booleans equal eager's or the double-precision answer, element by element.
- NaN and infinities lie where eager has them.

``paper`` is KernelBench's: 99 % of the elements within ``atol + rtol * |e|``, and relative L1 and L2 error at most 0.01
for fp32 (for tasks of 16 or 8 bits, at most that or twice eager's own).

Timed calls have fresh inputs, too many for double precision; they are compared with eager's answers under the sum of
both allowances (see :class:`Allowance`).

Outputs are compared in blocks (:mod:`optimizer.judge.blocks`), so that a comparison takes little memory of its own,
whatever the output's size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from extractor.schema import Tolerance
from optimizer.judge.blocks import Block, as_rows, blocks, first_true
from optimizer.judge.settings import Profile

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_NARROW = (torch.bfloat16, torch.float16, *_FP8)
RMS_MULTIPLE = dict.fromkeys(_NARROW, 2.0) | {torch.float32: 4.0, torch.float64: 4.0}
ELEMENT_MULTIPLE = dict.fromkeys(_NARROW, 4.0) | {torch.float32: 8.0, torch.float64: 8.0}
FLOOR = {
    torch.float8_e5m2: 2.0**-4,
    torch.float8_e4m3fn: 2.0**-5,
    torch.bfloat16: 2.0**-9,
    torch.float16: 2.0**-12,
    torch.float32: 2.0**-20,
    torch.float64: 2.0**-40,
}
FEW = 64  # elements
PAPER_SHARE = 0.99
PAPER_RELATIVE = 0.01
# Fresh inputs of timed calls are other draws than those eager's error was measured on: its largest element may grow.
DRAW_SLACK = 2.0
# Integers may flip where eager's rounding ties; of timed calls, at most this share may differ from eager.
INTEGER_FLIPS = 0.02
_CHUNK = 1 << 18  # elements of timed calls compared at a time
_HUGE = 1 << 22  # elements of one call beyond which it is compared in blocks


@dataclass(frozen=True)
class Comparison:
    """``error`` is the candidate's rms error over eager's own (floored); ``problem`` is empty if it is allowed."""

    error: float
    problem: str = ""


@dataclass(frozen=True)
class Usual:
    """Of an output of few elements, over all trials: eager's largest error and the answer's size, root mean squares."""

    error: float = 0.0
    size: float = 0.0


@dataclass(frozen=True)
class Truth:
    """One output of one trial: the double-precision answer and eager's."""

    exact: torch.Tensor
    eager: torch.Tensor
    usual: Usual = Usual()

    @property
    def is_float(self) -> bool:
        return self.eager.dtype.is_floating_point

    def compare(self, got: torch.Tensor, profile: Profile, tolerance: Tolerance) -> Comparison:
        """Judge one output; shape and dtype are right already."""
        if not self.is_float:
            return self._integers(got)
        if profile is Profile.PAPER:
            return self._paper(got, tolerance)
        return self._strict(got)

    def _integers(self, got: torch.Tensor) -> Comparison:
        count, where = 0, ""
        for block in blocks(got):
            mine, theirs = block.of(got), block.of(self.eager)
            wrong = (mine != theirs) & (mine != block.of(self.exact).to(mine.dtype))
            count += int(wrong.sum())
            where = where or _place(wrong, block, mine, theirs)
        return Comparison(0.0, f"{count / got.numel():.1%} of the elements differ{where}" if where else "")

    def _strict(self, got: torch.Tensor) -> Comparison:
        dtype, wide = self.eager.dtype, self.exact.dtype
        floor, multiple = FLOOR.get(dtype, 0.0), ELEMENT_MULTIPLE.get(dtype, 4.0)
        least = max(self.usual.error, floor * self.usual.size)
        mine_squared = own_squared = exact_squared = 0.0
        outside, where, worst = 0, "", _Worst()
        for block in blocks(got):
            result, eager = block.of(got).to(wide), block.of(self.eager).to(wide)
            finite = torch.isfinite(eager)
            if problem := _finite_problem(result, eager, finite, block):
                return Comparison(float("inf"), problem)
            right = block.of(self.exact)
            exact = torch.where(finite, right, 0)
            error = as_rows(torch.where(finite, result - exact, 0).abs())
            own = as_rows(torch.where(finite, eager - exact, 0).abs())
            rows = as_rows(exact)
            mine_squared += _squares(error)
            own_squared += _squares(own)
            exact_squared += _squares(rows)
            scale = _scale(rows)
            bound = (own / scale).amax(-1, keepdim=True).clamp_min(floor)
            wrong = (error > multiple * (bound * scale).clamp_min(least)).view(result.shape)
            outside += int(wrong.sum())
            where = where or _place(wrong, block, result, right)
            worst.see(error, block)
        count = max(got.numel(), 1)
        allowed = max(math.sqrt(own_squared / count), floor * math.sqrt(exact_squared / count), least)
        mine = math.sqrt(mine_squared / count)
        ratio = mine / allowed if allowed else (float("inf") if mine else 0.0)
        limit = RMS_MULTIPLE.get(dtype, 2.0)
        problem = ""
        if ratio > limit:
            problem = f"its error is {ratio:.3g} times eager's own against fp64 (allowed: {limit:g})"
            problem += where or worst.place(got, self.exact)
        elif outside:
            problem = f"{outside / count:.2%} of the elements are outside eager's error{where}"
        return Comparison(ratio, problem)

    def _paper(self, got: torch.Tensor, tolerance: Tolerance) -> Comparison:
        outside, where = 0, ""
        mine, own, size = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]  # of each the sum, and the sum of squares
        for block in blocks(got):
            result, eager = block.of(got).double(), block.of(self.eager).double()
            finite = torch.isfinite(eager)
            if problem := _finite_problem(result, eager, finite, block):
                return Comparison(float("inf"), problem)
            reference = torch.where(finite, eager, 0)
            error = torch.where(finite, result - reference, 0).abs()
            wrong = error > tolerance.atol + tolerance.rtol * reference.abs()
            outside += int(wrong.sum())
            where = where or _place(wrong, block, result, eager)
            eagers = torch.where(finite, block.of(self.exact).double() - reference, 0).abs()
            for sums, values in ((mine, error), (own, eagers), (size, reference.abs())):
                sums[0] += float(values.sum())
                sums[1] += _squares(values)
        share = 1.0 - outside / max(got.numel(), 1)
        if share < PAPER_SHARE:
            text = f"{share:.2%} of the elements are within tolerance (needed: {PAPER_SHARE:.0%})"
            return Comparison(0.0, text + where)
        norms = [(sums[0], math.sqrt(sums[1])) for sums in (mine, own, size)]
        for name, errors, eager_errors, sizes in zip(("L1", "L2"), *norms, strict=True):
            allowed = PAPER_RELATIVE * sizes
            if self.eager.dtype in _NARROW:
                allowed = max(allowed, 2 * eager_errors)
            if errors > allowed:
                return Comparison(0.0, f"its relative {name} error is {errors / max(sizes, 1e-30):.3g}")
        return Comparison(0.0)


@dataclass(frozen=True)
class Allowance:
    """How far one output of a timed call may be from eager's, relative to that answer's own size."""

    rms: float
    element: float
    is_float: bool
    size: float = 0.0  # of an output of few elements: the least it is taken for, root mean square

    @classmethod
    def of(cls, truths: Iterable[Truth], profile: Profile) -> Allowance:
        """From the trials of one output: candidate's allowance plus eager's own error, by the triangle inequality.

        The paper's profile bounds only the whole output; single elements may be anywhere.
        """
        rms = element = size = 0.0
        is_float = True
        for truth in truths:
            is_float = truth.is_float
            if not is_float:
                continue
            dtype = truth.eager.dtype
            floor = FLOOR.get(dtype, 0.0)
            size = truth.usual.size
            own_rms, own_element = (max(own, floor) for own in _own_error(truth))
            if profile is Profile.PAPER:
                rms, element = max(rms, PAPER_RELATIVE + 2.0 * own_rms), float("inf")
                continue
            rms = max(rms, (RMS_MULTIPLE.get(dtype, 2.0) + 1.0) * own_rms)
            element = max(element, DRAW_SLACK * (ELEMENT_MULTIPLE.get(dtype, 4.0) + 1.0) * own_element)
        return cls(rms, element, is_float, size)

    def problem(self, got: torch.Tensor, eager: torch.Tensor) -> str:
        """Judge a stack ``[calls, *shape]`` of one output; empty if every call is allowed."""
        eager = eager.to(got.device)  # a number that the reference returns is on the CPU
        if not self.is_float:
            return _flips(got, eager)
        if eager.dim() == 1:  # a scalar output
            got, eager = got.unsqueeze(1), eager.unsqueeze(1)
        # In chunks that stay in cache: fresh pages for large temporaries would cost more than the arithmetic.
        step = max(1, _CHUNK * eager.shape[0] // max(eager.numel(), 1))
        for first in range(0, eager.shape[0], step):
            mine, theirs = got[first : first + step], eager[first : first + step]
            if mine[0].numel() > _HUGE or self._outside(mine, theirs):
                for one, other in zip(mine, theirs, strict=True):
                    if problem := self._explain(one, other):
                        return problem
        return ""

    def _outside(self, got: torch.Tensor, eager: torch.Tensor) -> bool:
        """True if any of these calls is not allowed, or holds a NaN or infinity and needs a closer look."""
        expected = eager.to(_wide(eager.dtype))
        error = torch.sub(got.to(expected.dtype), expected).abs_()
        if not math.isfinite(float(error.sum())):
            return True
        if not error.numel():
            return False
        least = self.size * math.sqrt(expected[0].numel())
        relative = error.flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1).clamp_min_(
            max(least, 1e-30)
        )
        if float(relative.max()) > self.rms:
            return True
        scale = _scale(as_rows(expected)).clamp_min_(self.size)
        return bool((as_rows(error) > scale.mul_(self.element)).any())

    def _explain(self, got: torch.Tensor, eager: torch.Tensor) -> str:
        """What is wrong with a call, in blocks; empty if nothing is."""
        error_squared = size_squared = 0.0
        where, worst = "", _Worst()
        for block in blocks(got):
            theirs = block.of(eager).to(_wide(eager.dtype))
            mine = block.of(got).to(theirs.dtype)
            finite = torch.isfinite(theirs)
            if problem := _finite_problem(mine, theirs, finite, block):
                return problem
            expected = torch.where(finite, theirs, 0)
            error = torch.where(finite, mine - expected, 0).abs()
            error_squared += _squares(error)
            size_squared += _squares(expected)
            outside = as_rows(error) > self.element * _scale(as_rows(expected)).clamp_min(self.size)
            where = where or _place(outside.view(mine.shape), block, mine, theirs)
            worst.see(error, block)
        least = self.size * math.sqrt(got.numel())
        relative = math.sqrt(error_squared) / max(math.sqrt(size_squared), least, 1e-30)
        if relative > self.rms:
            return f"its relative error is {relative:.3g} (allowed: {self.rms:.2g}){worst.place(got, eager)}"
        return f"an element is outside eager's error{where}" if where else ""


def _flips(got: torch.Tensor, eager: torch.Tensor) -> str:
    """Judge a stack of integer or boolean outputs of timed calls."""
    count, where = 0, ""
    for mine, theirs in zip(got, eager, strict=True):
        for block in blocks(mine):
            wrong = block.of(mine) != block.of(theirs)
            count += int(wrong.sum())
            where = where or _place(wrong, block, block.of(mine), block.of(theirs))
    share = count / max(got.numel(), 1)
    return f"{share:.1%} of the elements differ from eager's{where}" if share > INTEGER_FLIPS else ""


def _wide(dtype: torch.dtype) -> torch.dtype:
    """In which timed calls of that dtype are compared."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass
class _Worst:
    """The block with the largest error so far."""

    error: float = -1.0
    block: Block | None = None

    def see(self, error: torch.Tensor, block: Block) -> None:
        if (peak := float(error.max())) > self.error:
            self.error, self.block = peak, block

    def place(self, got: torch.Tensor, expected: torch.Tensor) -> str:
        """Where that error is."""
        if self.block is None:
            return ""
        wide = _wide(expected.dtype)
        mine, right = self.block.of(got).to(wide), self.block.of(expected).to(wide)
        distance = (mine - right).abs().nan_to_num(0.0, 0.0)
        return _place(distance == distance.max(), self.block, mine, right)


def _own_error(truth: Truth) -> tuple[float, float]:
    """Eager's own error: root mean square over that of the answer, and the largest element's relative to its scale."""
    usual, count = truth.usual, max(truth.eager.numel(), 1)
    own_squared = exact_squared = largest = 0.0
    for block in blocks(truth.eager):
        eager, right = block.of(truth.eager).to(truth.exact.dtype), block.of(truth.exact)
        finite = torch.isfinite(eager)
        rows = as_rows(torch.where(finite, right, 0))
        own = as_rows(torch.where(finite, eager - right, 0).abs())
        own_squared += _squares(own)
        exact_squared += _squares(rows)
        largest = max(largest, float((own / _scale(rows).clamp_min(usual.size)).max()))
    size = max(math.sqrt(exact_squared / count), usual.size)
    own_rms = max(math.sqrt(own_squared / count), usual.error)
    if usual.size:
        largest = max(largest, usual.error / usual.size)
    return own_rms / size if size else 0.0, largest


def with_usual(truths: Sequence[Truth]) -> list[Truth]:
    """The trials of one output, each knowing what is usual if the output has few elements."""
    if not truths or not truths[0].is_float or truths[0].eager.numel() >= FEW:
        return list(truths)
    errors, sizes = [0.0], [0.0]
    for truth in truths:
        finite = torch.isfinite(truth.eager.float())
        exact = torch.where(finite, truth.exact, 0).double()
        if exact.numel():
            errors.append(float(torch.where(finite, truth.eager.double() - exact, 0).square().mean().sqrt()))
            sizes.append(float(exact.square().mean()))
    usual = Usual(max(errors), math.sqrt(sum(sizes) / len(truths)))
    return [replace(truth, usual=usual) for truth in truths]


def _scale(rows: torch.Tensor) -> torch.Tensor:
    """What an element's error is relative to; never 0."""
    size = rows.abs()
    return (size + size.mean(-1, keepdim=True)).clamp_min(1e-30) if rows.numel() else size


def _squares(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().sum())


def _finite_problem(got: torch.Tensor, eager: torch.Tensor, finite: torch.Tensor, block: Block) -> str:
    wrong = torch.isfinite(got) != finite
    if bool(wrong.any()):
        text = f"{int(wrong.sum())} elements are NaN or infinite where eager's are not, or not where they are"
        return text + _place(wrong, block, got, eager)
    if not bool(finite.all()):
        same = (torch.isnan(got) == torch.isnan(eager)) & (torch.isnan(got) | finite | (got == eager))
        if not bool(same.all()):
            return "NaN and infinity are not where eager has them" + _place(~same, block, got, eager)
    return ""


def _place(wrong: torch.Tensor, block: Block, got: torch.Tensor, expected: torch.Tensor) -> str:
    """Where in the output the first wrong element of a block is, and what it is; empty if nothing is wrong."""
    index = first_true(wrong) if bool(wrong.any()) else None
    if index is None:
        return ""
    first, second = got[index].item(), expected[index].item()
    return f"; at {block.place(index)} it is {_number(first)}, expected {_number(second)}"


def _number(value: float | int | bool) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""The numerical rules on made-up outputs: what is within eager's own error passes, what is beyond does not."""

import pytest
import torch

from extractor.schema import Tolerance
from optimizer.judge.settings import Profile
from optimizer.judge.tolerance import Allowance, Comparison, Truth, with_usual


def _truth(dtype: torch.dtype, shape: tuple[int, ...] = (4, 512), outliers: bool = False) -> Truth:
    exact = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    if outliers:
        exact[..., 0] = 64.0
    return Truth(exact=exact, eager=exact.to(dtype))


def _strict(truth: Truth, got: torch.Tensor) -> Comparison:
    return truth.compare(got, Profile.STRICT, Tolerance())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_eagers_own_answer_and_another_rounding_pass(dtype: torch.dtype) -> None:
    truth = _truth(dtype)
    assert _strict(truth, truth.eager).problem == ""
    nudged = (truth.exact * (1 + 0.2 * torch.finfo(dtype).eps)).to(dtype)
    assert _strict(truth, nudged).problem == ""


@pytest.mark.parametrize("relative", [0.02, 0.009])
def test_quantisation_noise_fails_in_bf16(relative: float) -> None:
    """8-bit weights cost about 0.9 % of the output."""
    truth = _truth(torch.bfloat16)
    noise = torch.randn(truth.exact.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    got = (truth.exact * (1 + relative * noise)).to(torch.bfloat16)
    assert "times eager's own" in _strict(truth, got).problem


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_wrong_element_fails_also_beside_outliers(dtype: torch.dtype) -> None:
    truth = _truth(dtype, (32, 4096), outliers=True)
    got = truth.eager.clone()
    got[17, 4095] += 0.25
    comparison = _strict(truth, got)
    assert "[17, 4095]" in comparison.problem


def test_a_zeroed_row_of_small_values_fails() -> None:
    exact = torch.randn((8, 256), dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    exact[3] *= 1e-3
    truth = Truth(exact, exact.to(torch.bfloat16))
    got = truth.eager.clone()
    got[3] = 0
    assert "[3," in _strict(truth, got).problem


def test_integers_may_equal_eager_or_the_exact_answer_only() -> None:
    eager = torch.tensor([1, 2, 3])
    truth = Truth(exact=torch.tensor([1, 2, 4]), eager=eager)
    assert _strict(truth, torch.tensor([1, 2, 4])).problem == ""
    assert _strict(truth, torch.tensor([1, 2, 3])).problem == ""
    assert "[2]" in _strict(truth, torch.tensor([1, 2, 5])).problem


@pytest.mark.parametrize(
    ("value", "allowed"), [(float("inf"), True), (float("-inf"), False), (float("nan"), False), (1.0, False)]
)
def test_non_finite_values_lie_where_eager_has_them(value: float, allowed: bool) -> None:
    exact = torch.ones(2, 32, dtype=torch.float64)
    exact[1, 5] = float("inf")
    truth = Truth(exact, exact.float())
    got = truth.eager.clone()
    got[1, 5] = value
    assert (_strict(truth, got).problem == "") is allowed


def test_a_nan_wildcard_is_no_pass() -> None:
    truth = _truth(torch.float32)
    assert "NaN" in _strict(truth, torch.full_like(truth.eager, float("nan"))).problem


def test_paper_allows_one_percent_of_the_elements_anywhere_but_bounds_the_whole() -> None:
    truth = _truth(torch.float32, (1, 10_000))
    got = truth.eager.clone()
    got[0, :50] += 0.05
    assert truth.compare(got, Profile.PAPER, Tolerance()).problem == ""
    got[0, :200] += 0.05
    assert "within tolerance" in truth.compare(got, Profile.PAPER, Tolerance()).problem
    far = truth.eager.clone()
    far[0, 0] += 100.0
    assert "relative" in truth.compare(far, Profile.PAPER, Tolerance()).problem


def test_timed_calls_are_bounded_by_both_allowances() -> None:
    truth = _truth(torch.bfloat16)
    allowance = Allowance.of([truth], Profile.STRICT)
    stack = truth.eager.unsqueeze(0).repeat(3, 1, 1)
    assert allowance.problem(stack, stack) == ""
    noise = torch.randn(stack.shape, generator=torch.Generator().manual_seed(2))
    assert "relative error" in allowance.problem((stack.float() * (1 + 0.02 * noise)).bfloat16(), stack)
    one = stack.clone()
    one[2, 1, 7] += 1.0
    assert "[1, 7]" in allowance.problem(one, stack)
    endless = stack.clone()
    endless[1, 0, 0] = float("inf")
    assert "infinite" in allowance.problem(endless, stack)
    assert allowance.problem(endless, endless) == ""


def test_empty_and_scalar_outputs() -> None:
    empty = Truth(torch.zeros(0, 4, dtype=torch.float64), torch.zeros(0, 4))
    assert _strict(empty, torch.zeros(0, 4)).problem == ""
    scalar = Truth(torch.tensor(2.0, dtype=torch.float64), torch.tensor(2.0))
    assert _strict(scalar, torch.tensor(2.0)).problem == ""
    assert _strict(scalar, torch.tensor(2.1)).problem != ""


_FP8 = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", _FP8)
@pytest.mark.parametrize("profile", [Profile.STRICT, Profile.PAPER])
def test_fp8_allows_its_own_rounding_and_not_a_coarser_one(dtype: torch.dtype, profile: Profile) -> None:
    exact = torch.randn((4, 512), generator=torch.Generator().manual_seed(3))
    truth = Truth(exact, exact.to(dtype))
    nudged = (exact * (1 + 0.1 * torch.finfo(dtype).eps)).to(dtype)
    coarse = ((exact / 0.75).round() * 0.75).to(dtype)
    if profile is Profile.STRICT:
        assert _strict(truth, nudged).problem == ""
    assert truth.compare(truth.eager, profile, Tolerance()).problem == ""
    assert truth.compare(coarse, profile, Tolerance()).problem != ""


@pytest.mark.parametrize("dtype", _FP8)
def test_fp8_nan_is_where_eager_has_it(dtype: torch.dtype) -> None:
    exact = torch.ones(2, 32)
    exact[1, 3] = float("nan")
    truth = Truth(exact, exact.to(dtype))
    assert _strict(truth, truth.eager).problem == ""
    assert "NaN" in _strict(truth, torch.ones(2, 32).to(dtype)).problem


def test_fp64_allows_another_order_and_no_step_in_fp32() -> None:
    values = torch.randn((8, 64, 4096), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    truth = Truth(values.sum(-1), values.sum(-1))
    assert _strict(truth, values.flip(-1).cumsum(-1)[..., -1]).problem == ""
    assert "times eager's own" in _strict(truth, values.float().double().sum(-1)).problem


def test_fp64_calls_are_timed_in_fp64() -> None:
    exact = torch.randn((4, 64), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    allowance = Allowance.of([Truth(exact, exact)], Profile.STRICT)
    assert allowance.problem(exact[None], exact[None]) == ""
    assert "relative error" in allowance.problem(exact.float().double()[None], exact[None])


def _sums(count: int) -> list[Truth]:
    values = torch.randn((count, 4096), generator=torch.Generator().manual_seed(1))
    exact = values.double().sum(-1)
    return [Truth(exact[i], values[i].sum()) for i in range(count)]


def test_a_sum_near_zero_is_judged_by_what_sums_usually_are() -> None:
    near_zero = Truth(torch.tensor(1e-4, dtype=torch.float64), torch.tensor(1e-4))
    truths = with_usual([*_sums(5), near_zero])
    got = torch.tensor(1e-4 + 2e-6)  # an ordinary rounding of a sum of size 64
    assert _strict(near_zero, got).problem != ""
    assert _strict(truths[-1], got).problem == ""
    assert _strict(truths[-1], torch.tensor(0.01)).problem != ""
    allowance = Allowance.of(truths, Profile.STRICT)
    assert allowance.problem(got[None], near_zero.eager[None]) == ""
    assert allowance.problem(torch.tensor([0.01]), near_zero.eager[None]) != ""


def test_outputs_of_many_elements_know_nothing_usual() -> None:
    truth = _truth(torch.float32)
    assert with_usual([truth, truth]) == [truth, truth]


def test_timed_scalars_and_empty_outputs() -> None:
    scalars = torch.tensor([1.0, 2.0, 3.0])
    allowance = Allowance.of(with_usual([Truth(v.double(), v) for v in scalars]), Profile.STRICT)
    assert allowance.problem(scalars, scalars) == ""
    assert "[0]" in allowance.problem(torch.tensor([1.0, 2.0, 4.0]), scalars)
    counts = Allowance.of([Truth(torch.tensor(3), torch.tensor(3))], Profile.STRICT)
    assert counts.problem(torch.tensor([3, 3]), torch.tensor([3, 3])) == ""
    assert "differ" in counts.problem(torch.tensor([3, 4]), torch.tensor([3, 3]))
    empty = torch.zeros(3, 0, 4)
    assert Allowance.of([Truth(empty[0].double(), empty[0])], Profile.STRICT).problem(empty, empty) == ""

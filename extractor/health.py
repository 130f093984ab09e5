"""Flags for *sick* tasks: those on which a wrong kernel could pass.

A task is sick if an output is not finite, empty, constant or near zero; if an input does not matter; if a constant,
or the answer to other inputs, is right within the paper's tolerance; if a reduction can be answered from a random half
of its data; or if its own outputs change from run to run. The check costs some forward calls per input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from extractor.program import flat_outputs
from extractor.schema import Law, LawKind, Tolerance, Workload

_NEAR_ZERO = 1e-6  # absolute, in the output's own units
# The ``paper`` profile, by which most judges accept an answer: so many elements within the tolerance, and a relative
# error over the whole output of at most so much in both norms.
_SHARE = 0.99
_RELATIVE = 0.01
# An output with at most this share of an input's elements is a reduction of it.
_REDUCED = 0.5
# Large outputs are first compared on so many evenly spaced elements: where those are this many times further off than
# the whole may be, the rest is not looked at.
_SAMPLE = 1 << 16
_FAR = 5
_SEED = 0  # of the random halves: a task's flags are the same every time
# What a program can raise on inputs it was not captured with.
_PROGRAM_ERRORS = (TypeError, ValueError, RuntimeError, IndexError, AssertionError)


@torch.no_grad()
def examine(
    model: torch.nn.Module,
    workload: Workload,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    fresh: Sequence[torch.Tensor],
    tolerance: Tolerance | None = None,
) -> tuple[str, ...]:
    """What is suspicious about a task, as short phrases; none for a healthy one.

    Args:
        model: the reference; its forward takes the workload's inputs.
        inputs, outputs: one call of it.
        fresh: other inputs of the same laws, on the same device.
        tolerance: the task's own for the ``paper`` profile; None means the usual one.
    """
    within = _Within(tolerance if tolerance is not None else Tolerance())
    constants = [within.constant(output) for output in outputs]
    flags = [flag for i, output in enumerate(outputs) if (flag := _of_values(i, output, constants[i]))]
    again = flat_outputs(model(*inputs))
    for index, (first, second) in enumerate(zip(outputs, again, strict=True)):
        if bool(torch.isfinite(first.float()).all()) and not within.same(second, first):
            flags.append(f"output {index} changes from run to run")
    try:
        others = flat_outputs(model(*fresh))
    except _PROGRAM_ERRORS as error:
        return (*flags, f"it fails on fresh inputs ({type(error).__name__})")
    flags += _of_other_draws(workload, inputs, outputs, fresh, others, constants, within)
    for index, spec in enumerate(workload.inputs):
        changed = _other_value(inputs[index], fresh[index], spec.law)
        if changed is None:
            continue
        results = _run(model, inputs, index, changed)
        if results is None:
            continue
        if all(_equal(result, output) for result, output in zip(results, outputs, strict=True)):
            flags.append(f"input {spec.name} does not matter")
            continue
        moved = [i for i, output in enumerate(outputs) if not within.same(results[i], output)]
        # What a constant answers is known to be guessable; that half of the data does so too is no news.
        flags += [
            f"output {i} can be guessed from half of input {spec.name}"
            for i in moved
            if not constants[i] and _guessable(model, inputs, index, outputs, i, within)
        ]
    return tuple(flags)


class _Within:
    """Right by the ``paper`` profile. Numbers are compared in fp32: the tolerance is far coarser."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance

    def same(self, guess: torch.Tensor, output: torch.Tensor) -> bool:
        """Whether ``guess`` passes for ``output``; integers and booleans must be equal."""
        if guess.shape != output.shape:
            return False
        if not output.dtype.is_floating_point:
            return torch.equal(guess, output)
        if output.numel() > _SAMPLE and self._far(_sample(guess), _sample(output)):
            return False
        truth, error = output.float(), (guess.float() - output.float()).abs_()
        allowed = self._tolerance.atol + self._tolerance.rtol * truth.abs()
        if truth.numel() and float((error <= allowed).float().mean()) < _SHARE:
            return False
        return all(
            float(torch.linalg.vector_norm(error, order))
            <= _RELATIVE * float(torch.linalg.vector_norm(truth, order))
            for order in (1, 2)
        )

    def constant(self, output: torch.Tensor) -> bool:
        """Whether one number passes for a whole output of at least two elements."""
        if output.numel() < 2 or not output.dtype.is_floating_point:
            return False
        numbers = (_sample(output).float().median(), output.float().mean())
        return any(self.same(number.expand(output.shape), output) for number in numbers)

    @staticmethod
    def _far(guess: torch.Tensor, output: torch.Tensor) -> bool:
        error = (guess.float() - output.float()).abs().sum()
        return bool(error > _FAR * _RELATIVE * output.float().abs().sum())


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """At most ``2 * _SAMPLE`` evenly spaced elements, flat."""
    flat = tensor.reshape(-1) if tensor.dim() != 1 else tensor
    return flat[:: max(flat.numel() // _SAMPLE, 1)]


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    """``torch.equal``, for 8-bit floats too."""
    if left.dtype == right.dtype and left.element_size() == 1:
        left, right = left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8)
    return torch.equal(left, right)


def _of_values(index: int, output: torch.Tensor, constant: bool) -> str:
    """What is wrong with an output's values by themselves, or an empty text; ``constant`` by the tolerance."""
    if not output.numel():
        return f"output {index} is empty"
    values = output.float() if output.dtype.is_floating_point else output
    if not bool(torch.isfinite(values).all()):
        return f"output {index} is not finite"
    if output.dtype.is_floating_point and float(values.abs().max()) < _NEAR_ZERO:
        return f"output {index} is near zero"
    if values.numel() > 1 and bool((values == values.reshape(-1)[0]).all()):
        return f"output {index} is constant"
    return f"output {index} is answered by a constant" if constant else ""


def _of_other_draws(
    workload: Workload,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    fresh: Sequence[torch.Tensor],
    others: Sequence[torch.Tensor],
    constants: Sequence[bool],
    within: _Within,
) -> list[str]:
    """What fresh inputs and the answers to them show: that nothing is fresh, or that it hardly matters."""
    if all(_equal(a, b) for a, b in zip(inputs, fresh, strict=True)):
        drawn = any(s.law.kind is not LawKind.RECORDED and 0 not in s.shape for s in workload.inputs)
        return ["no input changes from draw to draw"] if drawn else []
    return [
        f"output {index} is hardly different for other inputs"
        for index, (other, output) in enumerate(zip(others, outputs, strict=True))
        if output.numel() and not constants[index] and within.same(other, output)
    ]


def _guessable(
    model: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    index: int,
    outputs: Sequence[torch.Tensor],
    position: int,
    within: _Within,
) -> bool:
    """Whether a reduction of an input comes out right when a random half of it stands in for the other half.

    Halves are taken along every axis and over all elements. Each half must do for the other: if only one does, the
    other holds what the operator does not read.
    """
    tensor, output = inputs[index], outputs[position]
    if not tensor.dtype.is_floating_point or output.numel() > _REDUCED * tensor.numel():
        return False
    generator = torch.Generator().manual_seed(_SEED)
    axes = [axis for axis, size in enumerate(tensor.shape) if size > 1]

    def answers(half: torch.Tensor) -> bool:
        results = _run(model, inputs, index, half)
        return results is not None and within.same(results[position], output)

    return any(
        all(map(answers, _halves(tensor, axis, generator)))
        for axis in ([*axes, None] if len(axes) > 1 else axes)
    )


def _halves(tensor: torch.Tensor, axis: int | None, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Dense copies in which one half of the slices along ``axis`` (None: of all elements) replaces the other half."""
    flat = tensor.reshape(-1) if axis is None else tensor
    along = 0 if axis is None else axis
    count = flat.shape[along]
    order = torch.randperm(count, generator=generator).to(tensor.device)
    first, second = order[: count // 2], order[count - count // 2 :]
    raw = flat.view(torch.uint8) if flat.element_size() == 1 else flat  # few operations take 8-bit floats
    for kept, lost in ((first, second), (second, first)):
        source = torch.arange(count, device=tensor.device)
        source[lost] = kept
        yield raw.index_select(along, source).view(tensor.dtype).view(tensor.shape)


def _run(
    model: torch.nn.Module, inputs: Sequence[torch.Tensor], index: int, changed: torch.Tensor
) -> list[torch.Tensor] | None:
    """The outputs with one input changed; None if the others do not go with it, which shows that it matters."""
    try:
        return flat_outputs(model(*inputs[:index], changed, *inputs[index + 1 :]))
    except _PROGRAM_ERRORS:
        return None


def _other_value(tensor: torch.Tensor, fresh: torch.Tensor, law: Law) -> torch.Tensor | None:
    """Another valid value of the same input; None where none is known."""
    if law.kind is LawKind.RECORDED or not tensor.numel():
        return None
    if law.kind is LawKind.SOURCE and not _equal(tensor, fresh):
        return fresh
    if law.kind is LawKind.SOURCE and not tensor.dtype.is_floating_point:
        return None  # indices that never change: any other value might be out of range
    return _disturbed(tensor, law)


def _disturbed(tensor: torch.Tensor, law: Law) -> torch.Tensor:
    """Another valid value of the same tensor."""
    if law.kind is LawKind.INTEGERS:
        return ((tensor.long() + 1) % int(law.high)).to(tensor.dtype)
    if law.kind is LawKind.OFFSETS:  # every row to the last group
        last = torch.arange(len(tensor), device=tensor.device) == len(tensor) - 1
        return (
            torch.where(last, tensor, 0)
            if bool((tensor[:-1] != 0).any())
            else tensor[-1].expand(tensor.shape)
        )
    if law.kind in (LawKind.PREFIX_MASK, LawKind.CAUSAL_MASK):
        keep = tensor if tensor.dtype == torch.bool else tensor == 0
        first = torch.arange(tensor.shape[-1], device=tensor.device) == 0
        only = (keep & first).expand(tensor.shape)
        if tensor.dtype == torch.bool:
            return only
        return torch.zeros_like(tensor).masked_fill(~only, torch.finfo(tensor.dtype).min)
    return ((tensor.float().roll(1, -1) if tensor.dim() else tensor.float()) * 1.5 + 0.25).to(tensor.dtype)

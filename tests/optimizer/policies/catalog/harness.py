"""Renders a plan for a traced module, compiles it for one body's instruction set, and runs it on torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from extractor.schema import TaskSpec
from optimizer.languages.cpp import CppBuilder
from optimizer.languages.cpp_call import CppKernel
from optimizer.machine import machine_facts
from optimizer.policies.catalog.knobs import Knobs
from optimizer.policies.catalog.plans import Plan, choices, kind_of, render, slots_of
from optimizer.policies.catalog.semantics import explain

# What a machine whose richest instruction set is the body's would be compiled for.
TARGETS = {
    "avx512_bf16": (),
    "avx512f": ("-march=x86-64-v4",),
    "avx2": ("-march=x86-64-v3",),
    "portable": ("-march=x86-64",),
}


@cache
def builder() -> CppBuilder:
    return CppBuilder()


def runnable(body: str) -> bool:
    """True if this machine can run (and this compiler knows) the body."""
    facts = machine_facts()
    return facts.compiler is not None and body in facts.isa


def plan_for(spec: TaskSpec, body: str, knobs: Knobs | None = None) -> Plan:
    """A plan with one schedule for all slots; by default the first that fits."""
    semantics, why = explain(spec)
    assert semantics is not None, why
    schedules = tuple(
        (slot, choices(semantics, slot, body)[0] if knobs is None else knobs)
        for slot in slots_of(semantics, spec.workloads)
    )
    return Plan(kind_of(semantics), body, schedules)


def kernel_for(spec: TaskSpec, body: str, knobs: Knobs | None = None) -> CppKernel:
    """The compiled candidate."""
    semantics, why = explain(spec)
    assert semantics is not None, why
    source = render(spec, semantics, plan_for(spec, body, knobs))
    return CppKernel.load(builder().build_source(source, TARGETS[body]).path)


def run(
    kernel: CppKernel, spec: TaskSpec, module: torch.nn.Module, inputs: Sequence[torch.Tensor]
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """``(candidate's outputs, eager's outputs)`` on ``inputs``."""
    with torch.no_grad():
        expected = module(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    state = module.state_dict()
    weights = [state[weight.attribute] for weight in spec.weights]
    return kernel.bind(weights, list(inputs), list(expected))(*inputs), expected


def error_over_eager(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> float:
    """The candidate's largest error against float64, over eager's own (1.0: as good as eager)."""
    own = (eager.double() - exact).abs().max().item()
    return (got.double() - exact).abs().max().item() / max(own, 1e-30)

"""What calling a native kernel from the model costs, measured beside each batch of the candidate that it is added to.

Checks, pointers, fresh outputs: about 3 us. On a loaded machine it grows as eager's dispatch does, so it is measured
at the same moment.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from optimizer.judge.subjects import Subject, Subjects
from optimizer.languages.cpp_call import BoundKernel, CppKernel

SITES = 32
_ROUNDS = 3


@dataclass(frozen=True)
class EmptyCalls:
    """Bindings of an empty kernel to the tensors of one subject's timed calls.

    There are as many as a model has layers, called in turn: one binding called again and again would sit in the
    innermost cache and look cheaper than it is in a model.
    """

    sites: Sequence[tuple[BoundKernel, Sequence[torch.Tensor]]]

    @classmethod
    def of(cls, empty: CppKernel, subjects: Subjects, subject: Subject) -> EmptyCalls:
        """For one timed subject."""
        region = subject.inputs.timing
        assert region is not None
        weights = subjects.weights.slot(subjects.weight_region, 0)
        slots = [subjects.inputs.slot(region, slot) for slot in range(min(region.slots, SITES))]
        return cls([(empty.bind(weights, tensors, subject.workload.outputs), tensors) for tensors in slots])

    def microseconds(self) -> float:
        """CPU time of this thread that one call takes now."""
        samples = []
        for _ in range(_ROUNDS):
            start = time.thread_time_ns()
            for bound, inputs in self.sites:
                bound(*inputs)
            samples.append((time.thread_time_ns() - start) / len(self.sites))
        return statistics.median(samples) / 1000

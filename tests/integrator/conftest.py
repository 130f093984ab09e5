"""One toy model and engine for the integrator's tests; anything that changes a model makes its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.integrator.toy import toy_model


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model():
    """A fresh two-layer model in bfloat16."""
    return toy_model(dtype=torch.bfloat16)

"""Both names of a model's cache, read and given."""

from typing import Any

import pytest
from torch import nn

from extractor.cache_argument import as_cache_argument, cache_argument


class Old(nn.Module):
    def forward(self, ids: Any, past_key_values: Any = None, **kwargs: Any) -> Any: ...


class New(nn.Module):
    def forward(self, ids: Any, cache: Any = None, **kwargs: Any) -> Any: ...


class Silent(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any: ...


@pytest.mark.parametrize(
    ("model", "name"), [(Old(), "past_key_values"), (New(), "cache"), (Silent(), "past_key_values")]
)
def test_the_name_is_the_one_the_class_declares(model: nn.Module, name: str) -> None:
    model.forward = lambda *args, **kwargs: None  # a patched instance does not hide it
    assert as_cache_argument(model, 1) == {name: 1}


def test_the_name_that_holds_a_cache_is_read() -> None:
    assert cache_argument({"cache": None, "past_key_values": 2, "input_ids": 3}) == 2
    assert cache_argument({"cache": None, "input_ids": 3}) is None

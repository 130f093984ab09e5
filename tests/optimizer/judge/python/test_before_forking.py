"""What the warm process does must not touch the GPU: no process forked from it could use the device then."""

import pytest
import torch

from optimizer.judge.python.zygote import _import_late_ones


def test_nothing_asks_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    for name in ("is_available", "device_count", "init", "_lazy_init", "current_device"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: asked.append(name) or False)
    _import_late_ones()
    assert asked == []

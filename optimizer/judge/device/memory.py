"""Worker side: the judge's device memory, opened here. Nothing in it outlives the judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from extractor.laws import torch_dtype
from optimizer.judge.device import driver
from optimizer.languages.abi import ITEM_BYTES


class IpcMemory:
    """Inputs, weights and outputs of the judge as tensors of this process.

    Raises:
        DeviceFault: a handle cannot be opened.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        device = plan["device"]
        driver.make_current(device)
        self._bytes = {
            kind: driver.bytes_at(driver.open_shared(bytes.fromhex(handle)), plan["sizes"][kind], device)
            for kind, handle in plan["handles"].items()
        }

    def tensor(self, kind: str, abi: Sequence[Any], base: int) -> torch.Tensor:
        """The tensor that ``abi`` (shape, stride, dtype, offset in bytes) describes, from byte ``base`` on."""
        shape, stride, dtype, offset = abi
        typed = self._bytes[kind].view(torch_dtype(dtype))
        return torch.as_strided(typed, shape, stride, (base + offset) // ITEM_BYTES[dtype])

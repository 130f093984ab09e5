"""The untrusted side: a torch-free process that loads one candidate behind walls and calls it when told.

It is started with a channel (a SEQPACKET socket) and three memory files: inputs and weights, sealed against
writing, and outputs. It reads its plan from standard input, raises the walls, and only then loads the candidate.
From that moment nothing it says is believed except "done", and a forged "done" meets unwritten outputs.

Messages are documented in :mod:`optimizer.judge.wire`.
"""

import ctypes
import json
import mmap
import os
from typing import Any

from optimizer.judge import wire
from optimizer.judge.isolation.walls import WallPlan, raise_walls
from optimizer.languages.abi import FORWARD, PACK, PACKED_BYTES, TensorArray
from optimizer.languages.fenv import control_word

_PROT_READ, _PROT_WRITE = 1, 2


class _Mapping:
    """A whole memory file in this process's address space; ``address`` is its first byte."""

    def __init__(self, descriptor: int, size: int, *, writable: bool) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        protection = _PROT_READ | (_PROT_WRITE if writable else 0)
        address = libc.mmap(None, max(size, 1), protection, mmap.MAP_SHARED, descriptor, 0)
        if address is None or address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap failed")
        self.address: int = address
        os.close(descriptor)


class _Packed:
    """A kernel's packed form of one weight copy, in pages of its own that are read-only outside packing."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._size = ctypes.c_size_t(max(size, 1))
        self._protect = ctypes.CDLL(None).mprotect

    def writable(self, on: bool) -> None:
        protection = _PROT_READ | (_PROT_WRITE if on else 0)
        self._protect(ctypes.c_void_p(self.address), self._size, ctypes.c_int(protection))


class _Host:
    """The candidate's host: descriptors, argument arrays and the loaded library."""

    def __init__(self, plan: dict[str, Any], inputs: _Mapping, weights: _Mapping, outputs: _Mapping) -> None:
        self._plan = plan
        self._inputs, self._outputs = inputs, outputs
        self._runner = ctypes.CDLL(plan["runner"])
        self._runner.kg_run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._weights: list[TensorArray] = []
        described = plan["weights"]
        for copy in range(described["copies"]):
            array = TensorArray([tuple(tensor[:3]) for tensor in described["tensors"]])
            base = weights.address + copy * described["bytes"]
            for index, tensor in enumerate(described["tensors"]):
                array.set_data(index, base + tensor[3])
            self._weights.append(array)
        self._packed: dict[int, _Packed] = {}
        self._calls: dict[int, tuple[Any, list[Any]]] = {}
        self._library: ctypes.CDLL | None = None

    def watch(self, channel: int) -> None:
        self._runner.kg_watch(ctypes.c_int(channel))

    def load(self) -> str:
        """Load the candidate; empty, or what is wrong with it."""
        try:
            self._library = ctypes.CDLL(self._plan["library"])
        except OSError as error:
            return f"it cannot be loaded: {error}"
        if not hasattr(self._library, FORWARD):
            return f'it exports no {FORWARD}; define it as extern "C"'
        if hasattr(self._library, PACK) != hasattr(self._library, PACKED_BYTES):
            return f"{PACK} and {PACKED_BYTES} come only together"
        return ""

    def pack(self, copy: int) -> int:
        """Pack one weight copy (again); bytes it takes."""
        if self._library is None or not hasattr(self._library, PACK):
            return 0
        measure, pack = self._library[PACKED_BYTES], self._library[PACK]
        measure.restype = ctypes.c_size_t
        address = ctypes.c_void_p(self._weights[copy].address)
        size = int(measure(address))
        if copy not in self._packed:
            self._packed[copy] = _Packed(size)
            self._calls.clear()
        target = self._packed[copy]
        target.writable(True)
        pack(address, ctypes.c_void_p(target.address))
        target.writable(False)
        return size

    def run(self, region: int, first: int, count: int) -> int:
        """Call the candidate on ``count`` slots of a region; the first status that is not 0, else 0."""
        if self._library is None:
            return 0
        if region not in self._calls:
            self._calls[region] = self._argument_sets(self._plan["regions"][region])
        calls, _keep = self._calls[region]
        forward = ctypes.cast(self._library[FORWARD], ctypes.c_void_p)
        status: int = self._runner.kg_run(forward, ctypes.byref(calls, 32 * first), count)
        return status

    def _argument_sets(self, region: dict[str, Any]) -> tuple[Any, list[Any]]:
        slots, copies = region["slots"], region["copies"]
        keep: list[Any] = []
        starts = []
        for side, base in (("inputs", self._inputs.address), ("outputs", self._outputs.address)):
            tensors = region[side]["tensors"]
            array = TensorArray([tuple(tensor[:3]) for tensor in tensors])
            whole = bytearray(bytes(array.array) * slots)
            words = memoryview(whole).cast("Q")
            stride = len(array.words)
            for slot in range(slots):
                origin = base + region[side]["base"] + slot * region[side]["bytes"]
                for index, tensor in enumerate(tensors):
                    words[slot * stride + 4 * index] = origin + tensor[3]
            buffer = (ctypes.c_char * len(whole)).from_buffer(whole)
            keep += [array, whole, buffer]
            starts.append((ctypes.addressof(buffer), 8 * stride))
        calls = (ctypes.c_uint64 * (4 * slots))()
        for slot in range(slots):
            copy = slot % copies
            packed = self._packed.get(copy)
            calls[4 * slot] = starts[0][0] + slot * starts[0][1]
            calls[4 * slot + 1] = self._weights[copy].address
            calls[4 * slot + 2] = starts[1][0] + slot * starts[1][1]
            calls[4 * slot + 3] = packed.address if packed else 0
        return calls, keep


def main(arguments: list[str]) -> None:
    """``CHANNEL INPUTS WEIGHTS OUTPUTS`` descriptors; the plan comes on standard input."""
    channel, *files = (int(argument) for argument in arguments)
    text = b""
    while block := os.read(0, 1 << 16):
        text += block
    plan = json.loads(text)
    sizes = plan["sizes"]
    inputs = _Mapping(files[0], sizes["inputs"], writable=False)
    weights = _Mapping(files[1], sizes["weights"], writable=False)
    outputs = _Mapping(files[2], sizes["outputs"], writable=True)
    # A candidate that floods a pipe nobody reads would block; what it prints is of no interest.
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    walls = raise_walls(WallPlan.from_json(plan["walls"]))
    host = _Host(plan, inputs, weights, outputs)
    bases = [inputs.address, weights.address, outputs.address]
    os.write(channel, wire.hello([tuple(wall) for wall in walls], bases, control_word()))
    host.watch(channel)
    while message := os.read(channel, wire.COMMAND.size):
        action, first, second, third = wire.COMMAND.unpack(message)
        if action == wire.LOAD:
            problem = host.load()
            os.write(channel, wire.done(int(bool(problem)), control_word(), problem))
        elif action == wire.PACK:
            os.write(channel, wire.done(0, control_word(), str(host.pack(first))))
        elif action == wire.RUN:
            status = host.run(first, second, third)
            os.write(channel, wire.done(status, control_word()))

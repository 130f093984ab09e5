"""The messages between judge and worker, one datagram each. Torch-free: both sides import it.

judge -> worker: :data:`COMMAND`, an action and three numbers: ``LOAD``; ``PACK copy``; ``RUN region first count``.
Workers of Python candidates also know ``PUBLISH region`` (copy the kept results of the last calls to the outputs),
``KNOCK_OUT on``, ``TIME region``, ``REPLAY region``, ``PROFILE region`` and ``WAKE``; their ``PACK copy`` constructs
the model.
worker -> judge: first :func:`hello`; then one :func:`done` a command; or a :data:`FAULT` just before it dies.
All of it is data of fixed layout: nothing is unpickled, and a datagram of another size or tag is a protocol breach.
"""

import json
import struct
from typing import NamedTuple

COMMAND = struct.Struct("<4I")
DONE = struct.Struct("<cxxxiI")
FAULT = struct.Struct("<cbhiQ")
LOAD, PACK, RUN, PUBLISH, KNOCK_OUT, TIME, REPLAY, PROFILE, WAKE = range(1, 10)
MAX_MESSAGE = 1 << 16
MAX_TEXT = 1 << 15
OK, RAISED, NOT_WHAT_IT_SAYS, NOT_CAPTURABLE = 0, 10, 11, 12  # Done.status of workers of Python candidates


class Done(NamedTuple):
    """A command was carried out, the worker says. ``control`` is the floating-point control word."""

    status: int
    control: int
    text: str


class Fault(NamedTuple):
    """A signal is about to kill the worker."""

    signal: int
    address: int
    write: bool
    text: str = ""  # where in the candidate, as its process says


class Hello(NamedTuple):
    """Sent before the candidate is loaded: walls as (name, on, why), mapping addresses, control word."""

    walls: tuple[tuple[str, bool, str], ...]
    bases: tuple[int, int, int]
    control: int


class Breach(Exception):
    """A message that no worker sends."""


def hello(walls: list[tuple[object, ...]], bases: list[int], control: int) -> bytes:
    """The worker's first message."""
    return b"H" + json.dumps([walls, bases, control]).encode()


def done(status: int, control: int, text: str = "") -> bytes:
    """The answer to a command."""
    return DONE.pack(b"D", status, control) + text.encode("utf-8", errors="replace")[:MAX_TEXT]


def parse(message: bytes) -> Done | Fault | Hello:
    """Decode a worker's message. Raises Breach."""
    try:
        if message[:1] == b"H":
            walls, bases, control = json.loads(message[1:])
            triples = tuple((str(name), bool(on), str(why)) for name, on, why in walls)
            first, second, third = (int(base) for base in bases)
            return Hello(triples, (first, second, third), int(control))
        if message[:1] == b"D":
            _, status, control = DONE.unpack(message[: DONE.size])
            return Done(status, control, message[DONE.size :].decode("utf-8", errors="replace"))
        if message[:1] == b"X":
            _, write, signal, _code, address = FAULT.unpack(message[: FAULT.size])
            return Fault(
                signal, address, bool(write), message[FAULT.size :].decode("utf-8", errors="replace")
            )
    except (ValueError, TypeError, OverflowError, RecursionError, struct.error) as error:
        raise Breach(f"malformed message of {len(message)} bytes") from error
    raise Breach(f"unknown message of {len(message)} bytes")

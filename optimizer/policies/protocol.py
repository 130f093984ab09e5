"""The one protocol every policy speaks: conversation in, completion out.

A *turn* is one candidate with its verdict. A *trajectory* is up to ``T`` turns on one task. The conversation a
policy is handed holds the task, the trajectory's earlier turns, and the same rendered as messages: a language
model reads the messages, the embedded catalog reads the structured part. Policies write candidates and never
judge them.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from extractor.task import Task
from optimizer.candidate import Candidate, Language
from optimizer.judge.verdict import Verdict


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class StopReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"  # the policy was done
    LENGTH = "length"  # the token limit cut it off
    EXHAUSTED = "exhausted"  # the policy has nothing new to propose for this task; the trajectory ends
    ERROR = "error"  # the server failed for good; the turn is recorded as failed


@dataclass(frozen=True)
class Message:
    role: Role
    content: str


@dataclass(frozen=True)
class Turn:
    """One earlier turn. ``candidate`` is ``None`` if no candidate could be parsed out of the completion."""

    index: int
    candidate: Candidate | None
    verdict: Verdict | None
    summary: str = ""


@dataclass(frozen=True)
class Conversation:
    """What a policy may know when it writes the next candidate."""

    task: Task
    language: Language
    trajectory: int
    turns: tuple[Turn, ...] = ()
    messages: tuple[Message, ...] = ()
    timed_workloads: tuple[str, ...] = ()  # workload ids the score is about; all others are checked only

    @property
    def turn(self) -> int:
        """Index of the turn about to be written, from 0."""
        return len(self.turns)


@dataclass(frozen=True)
class Completion:
    """A policy's answer: text holding one fenced code block, plus what the trainer needs where it exists."""

    text: str
    stop_reason: StopReason = StopReason.STOP
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    notes: dict[str, str] = field(default_factory=dict)


class Policy(Protocol):
    """Writes candidates. ``name`` identifies it in stores and reports (``catalog``, ``openai:...``)."""

    name: str

    def complete(self, conversation: Conversation, *, seed: int) -> Completion:
        """The next completion of this trajectory. Deterministic in its arguments for embedded policies."""

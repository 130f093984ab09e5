"""What a policy is told in a turn: the task, the machine, the rules, and its earlier kernels with their verdicts.

Messages alternate system, user, assistant, user, ... and end with the user. Earlier turns are shown as kernel,
summary and feedback, never with chain of thought; when the limit is reached the oldest are left out first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

from extractor.schema import TensorSpec, Workload
from extractor.task import Task
from optimizer.answers import wanted_tag
from optimizer.candidate import Language
from optimizer.judge.verdict import Outcome, Verdict
from optimizer.policies.protocol import Conversation, Message, Role, Turn

DEFAULT_LIMIT = 160_000  # characters, about 40,000 tokens of code
LOG_CHARACTERS = 3_000

_SYSTEM = """You write fast, correct kernels for operators of language models. You are given one operator as a \
PyTorch program and improve it over several turns; after each you are told how your kernel was judged. Answer \
with one complete ```{tag} block holding the whole source, followed by a summary of at most three sentences."""

_RULES = """# How it is judged
- The kernel must compute what `Model.forward` computes, on every listed workload, for fresh random inputs and \
weights. It must write all of every output, and nothing else. Inputs and weights are read-only.
- It must be the work of your own code: no call back into the reference, no caching of results between calls by \
pointer or value, no threads left running, no files, no network, no clock.
- Error is measured against the reference in 64-bit; being about as accurate as PyTorch at the task's dtype is \
enough, so keep the reference's accumulation precision.
- Speed is the ratio of PyTorch eager's median time to yours, weighted by calls, over the timed workloads. An \
untimed workload may be declined; a timed one may not."""

_CPP_RULES = """# Language: C++ behind one C entry point
Compiled with -O3 for this machine and without torch headers. Everything you may rely on is in kg.h, which is \
included already. Work derived from weights alone (packing, transposing) belongs in kg_pack, which is run once per \
weight set and is not timed.
```cpp
{prelude}```"""

_PYTHON_RULES = """# Language: {name}, in a Python file
Define `class ModelNew(nn.Module)` with the constructor and parameters of `Model` and the same `forward` \
signature. At least one kernel of your own ({name}) must do the work; answers that only call the library are \
refused."""

_NEXT = "Write a new, complete kernel that is correct and faster than all before."


@dataclass(frozen=True)
class Briefing:
    """What stays the same over the turns of a task. ``machine`` is a few lines of facts, free text."""

    task: Task
    language: Language
    timed_workloads: tuple[str, ...]
    machine: str = ""
    limit: int = DEFAULT_LIMIT
    measure: Callable[[str], int] = len  # length of a text in the unit of ``limit``

    @cached_property
    def opening(self) -> tuple[Message, Message]:
        """The system message and the task's statement."""
        parts = [
            f"# Task {self.task.spec.label}\n```python\n{self.task.source.rstrip()}\n```",
            self._signature(),
            self._workloads(),
            f"# Machine\n{self.machine}" if self.machine else "",
            language_rules(self.language),
            _RULES,
        ]
        system = _SYSTEM.format(tag=wanted_tag(self.language))
        return Message(Role.SYSTEM, system), Message(Role.USER, "\n\n".join(part for part in parts if part))

    def conversation(self, trajectory: int, turns: tuple[Turn, ...]) -> Conversation:
        """The conversation for the next turn of a trajectory. ``turns`` stay complete; messages are cut to size."""
        system, statement = self.opening
        budget = self.limit - self.measure(system.content) - self.measure(statement.content)
        kept: list[tuple[Message, Message]] = []
        for turn in reversed(turns):
            answer = feedback(turn, repeats=_first_use(turn, turns))
            pair = (Message(Role.ASSISTANT, _said(turn, self.language)), Message(Role.USER, answer))
            budget -= sum(self.measure(message.content) for message in pair)
            if budget < 0:
                break
            kept.insert(0, pair)
        omitted = len(turns) - len(kept)
        if omitted:
            note = (
                f"{statement.content}\n\n({omitted} earlier turn{'s' * (omitted > 1)} left out for length.)"
            )
            statement = Message(Role.USER, note)
        messages = (system, statement, *(message for pair in kept for message in pair))
        return Conversation(
            task=self.task,
            language=self.language,
            trajectory=trajectory,
            turns=turns,
            messages=messages,
            timed_workloads=self.timed_workloads,
        )

    def _signature(self) -> str:
        """Tensors in the order in which a candidate receives them."""
        spec = self.task.spec
        first = spec.workloads[0]
        lines = ["# Tensors, in order", f"inputs: {', '.join(t.name for t in first.inputs) or 'none'}"]
        lines += [f"weight: {w.attribute} {_sizes(w.shape)} {w.dtype}" for w in spec.weights]
        lines.append(f"outputs: {', '.join(t.name for t in first.outputs)}")
        return "\n".join(lines)

    def _workloads(self) -> str:
        lines = ["# Workloads"]
        for workload in self.task.spec.workloads:
            timed = "timed" if workload.id in self.timed_workloads else "checked only"
            lines.append(f"- {workload.id} ({timed}, M={workload.rows}, {workload.calls} calls a step)")
            lines += [f"  {line}" for line in _tensors(workload)]
        return "\n".join(lines)


@cache
def language_rules(language: Language) -> str:
    """The part of the prompt that states the language's interface."""
    if language is Language.CPP:
        prelude = resources.files("optimizer.languages").joinpath("prelude/kg.h").read_text(encoding="utf-8")
        return _CPP_RULES.format(prelude=prelude)
    return _PYTHON_RULES.format(name="Triton" if language is Language.TRITON else "CUDA")


def feedback(turn: Turn, *, repeats: int | None = None) -> str:
    """What the policy is told about an earlier turn, one screen at most.

    Args:
        repeats: index of the earlier turn that held the same kernel, if any.
    """
    if turn.verdict is None:
        why = turn.summary or "no kernel could be read from your answer"
        return f"Your answer could not be used: {why}.\n{_NEXT}"
    verdict = turn.verdict
    lines = [f"{_HEADLINES[verdict.outcome]} {verdict.reason}".strip()]
    if repeats is not None:
        lines.insert(0, f"This is the kernel of turn {repeats} again; it was not judged anew.")
    if verdict.correct:
        lines += _timings(verdict)
    else:
        lines += [f"- {r.workload}: {r.detail}" for r in verdict.results if r.detail]
        if verdict.log:
            lines.append(f"```\n{_shortened(verdict.log)}\n```")
    if verdict.profile:
        lines.append(f"Profile, for reference only:\n{verdict.profile}")
    lines.append(_NEXT)
    return "\n".join(lines)


def _first_use(turn: Turn, turns: tuple[Turn, ...]) -> int | None:
    """Index of the first earlier turn with the same kernel."""
    same = (t.index for t in turns if t.index < turn.index and t.candidate == turn.candidate is not None)
    return next(same, None)


_HEADLINES = {
    Outcome.REFUSED: "Refused before it was run:",
    Outcome.BUILD_FAILED: "It did not compile:",
    Outcome.CRASHED: "It crashed:",
    Outcome.HUNG: "It did not finish in time:",
    Outcome.UNSUPPORTED: "It declined a workload that it must serve:",
    Outcome.WRONG: "Its result is wrong:",
    Outcome.IMPLAUSIBLE: "Its speed is not believable:",
    Outcome.CORRECT: "It is correct:",
    Outcome.SANDBOX_FAILED: "It could not be judged (not your fault):",
}


def _timings(verdict: Verdict) -> list[str]:
    lines = []
    if verdict.speedup is not None:
        lines.append(f"Speedup over PyTorch eager: {verdict.speedup:.2f}x.")
    for result in verdict.results:
        if result.decisive is not None and result.speedup is not None:
            reference, candidate = result.decisive
            lines.append(
                f"- {result.workload}: {candidate.median:.1f} us, eager {reference.median:.1f} us"
                f" ({result.speedup:.2f}x)"
            )
    if verdict.roofline is not None:
        lines.append(f"It reaches {verdict.roofline:.0%} of what this machine's roofline allows.")
    return lines


def _said(turn: Turn, language: Language) -> str:
    if turn.candidate is None:
        return "(no kernel)"
    return f"```{wanted_tag(language)}\n{turn.candidate.source.rstrip()}\n```\n{turn.summary}".rstrip()


def _shortened(log: str) -> str:
    """The head of a log and a little of its end: compilers put the cause first."""
    if len(log) <= LOG_CHARACTERS:
        return log.rstrip()
    tail = LOG_CHARACTERS // 4
    return f"{log[: LOG_CHARACTERS - tail].rstrip()}\n[...]\n{log[-tail:].strip()}"


def _tensors(workload: Workload) -> list[str]:
    return [f"in  {_tensor(t)}" for t in workload.inputs] + [f"out {_tensor(t)}" for t in workload.outputs]


def _tensor(spec: TensorSpec) -> str:
    return f"{spec.name} {_sizes(spec.shape)} strides {_sizes(spec.stride)} {spec.dtype}"


def _sizes(values: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, values))}]"

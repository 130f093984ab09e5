"""Plans: one instruction-set body and one schedule for each row count M a candidate specialises on.

A plan's text is a line of the candidate itself (``// plan: ...``), so that the policy can read earlier turns back
from their sources and needs no memory of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

from extractor.schema import TaskSpec, Workload
from optimizer.policies.catalog.attention import DecodeAttention
from optimizer.policies.catalog.graph import Graph
from optimizer.policies.catalog.knobs import (
    ATTENTION_SPACE,
    BF16_DOT,
    BODIES,
    LINEAR_SPACE,
    ROW_SPACE,
    SPECIALISED,
    AttentionKnobs,
    Knobs,
    LinearKnobs,
    RowKnobs,
)
from optimizer.policies.catalog.linear import LinearGroup
from optimizer.policies.catalog.render import render_attention, render_linear, render_rows
from optimizer.policies.catalog.semantics import Semantics

ALL_ROWS = 0  # the slot of templates that have one schedule for every M
_KINDS: dict[str, type[LinearKnobs] | type[AttentionKnobs] | type[RowKnobs]] = {
    "linear": LinearKnobs,
    "attention": AttentionKnobs,
    "rows": RowKnobs,
}
_LINE = re.compile(r"^// plan: (.+)$", re.MULTILINE)
Choice: TypeAlias = tuple[str, Knobs]  # body, schedule


@dataclass(frozen=True)
class Plan:
    """``schedules`` maps each slot (a row count M, or :data:`ALL_ROWS`) to its schedule, in slot order."""

    kind: str  # "linear", "attention", "rows"
    body: str
    schedules: tuple[tuple[int, Knobs], ...]

    def __str__(self) -> str:
        """``linear body=avx512_bf16 M1(rows=1 unroll=2 ahead=8192)``: what :meth:`parse` reads."""
        slots = (f"M{slot}({_knob_text(knobs)})" for slot, knobs in self.schedules)
        return f"{self.kind} body={self.body} {' '.join(slots)}"

    @classmethod
    def parse(cls, source: str) -> Plan | None:
        """The plan a candidate's source states, or ``None`` if it is none of the catalog's."""
        found = _LINE.search(source)
        if found is None:
            return None
        head = re.match(r"(\w+) body=(\w+) (.+)$", found.group(1))
        if head is None or head.group(1) not in _KINDS or head.group(2) not in BODIES:
            return None
        kind = _KINDS[head.group(1)]
        schedules: list[tuple[int, Knobs]] = []
        for slot, text in re.findall(r"M(\d+)\(([^)]*)\)", head.group(3)):
            values = dict(re.findall(r"(\w+)=(\d+)", text))
            if set(values) != {field.name for field in fields(kind)}:
                return None
            schedules.append((int(slot), _build(head.group(1), {n: int(v) for n, v in values.items()})))
        return cls(head.group(1), head.group(2), tuple(schedules)) if schedules else None

    @property
    def notes(self) -> dict[str, str]:
        """The knobs, for tables."""
        per_slot = {
            ("all M" if slot == ALL_ROWS else f"M={slot}"): _knob_text(knobs)
            for slot, knobs in self.schedules
        }
        return {"template": self.kind, "body": self.body, **per_slot}


def _build(kind: str, numbers: dict[str, int]) -> Knobs:
    if kind == "linear":
        return LinearKnobs(**numbers)
    if kind == "attention":
        return AttentionKnobs(**numbers)
    return RowKnobs(numbers["unroll"], bool(numbers["buffer"]))


def _knob_text(knobs: Knobs) -> str:
    return " ".join(f"{field.name}={int(getattr(knobs, field.name))}" for field in fields(knobs))


def kind_of(semantics: Semantics) -> str:
    """Name of the template that renders these semantics."""
    if isinstance(semantics, LinearGroup):
        return "linear"
    return "attention" if isinstance(semantics, DecodeAttention) else "rows"


def slots_of(semantics: Semantics, timed: tuple[Workload, ...]) -> tuple[int, ...]:
    """The slots worth a schedule of their own: the timed row counts a linear candidate specialises on."""
    if not isinstance(semantics, LinearGroup):
        return (ALL_ROWS,)
    used = {nearest(workload.rows) for workload in timed}
    return tuple(sorted(used)) or (1,)


def nearest(rows: int) -> int:
    """The specialised row count that mainly serves ``rows`` input rows."""
    return max(m for m in SPECIALISED if m <= max(rows, 1))


def slot_of(semantics: Semantics, workload: Workload) -> int:
    """The slot whose schedule a workload's time depends on."""
    return nearest(workload.rows) if isinstance(semantics, LinearGroup) else ALL_ROWS


def bodies_for(semantics: Semantics, isa: tuple[str, ...]) -> tuple[str, ...]:
    """Bodies this machine can run for this dtype, richest first."""
    return tuple(
        body for body in BODIES if body in isa and (body != BF16_DOT or semantics.dtype == "bfloat16")
    )


def choices(semantics: Semantics, slot: int, body: str) -> tuple[Knobs, ...]:
    """All schedules of one slot that make sense with a body."""
    if isinstance(semantics, LinearGroup):
        return tuple(
            knobs
            for knobs in LINEAR_SPACE
            if knobs.fits(slot, body) and knobs.rows <= max(part.n for part in semantics.parts)
        )
    if isinstance(semantics, DecodeAttention):
        group = semantics.heads // semantics.kv_heads
        fitting = tuple(knobs for knobs in ATTENTION_SPACE if knobs.fits(group, semantics.v_width, body))
        return fitting or (AttentionKnobs(keys=1, chunk=1),)
    return tuple(knobs for knobs in ROW_SPACE if semantics.shared or not knobs.buffer)


def features(semantics: Semantics, slot: int, timed: tuple[Workload, ...]) -> tuple[float, ...]:
    """Where a slot lies among measured ones: log2 of the sizes its best schedule depends on."""
    if isinstance(semantics, LinearGroup):
        sizes: tuple[int, ...] = (semantics.k, semantics.n, slot)
    elif isinstance(semantics, DecodeAttention):
        length = max((workload.cache_len for workload in timed), default=1)
        sizes = (semantics.width, semantics.heads // semantics.kv_heads, length)
    else:
        sizes = (semantics.row, semantics.reductions + 1, len(semantics.shared) + 1)
    return tuple(round(math.log2(max(size, 1)), 3) for size in sizes)


def render(spec: TaskSpec, semantics: Semantics, plan: Plan) -> str:
    """The candidate a plan stands for."""
    graph = Graph(spec)
    title = f"{spec.family.value}: {', '.join(spec.output_refs)}\n// plan: {plan}"
    slots: Mapping[int, Knobs] = dict(plan.schedules)
    if isinstance(semantics, LinearGroup):
        return render_linear(graph, semantics, plan.body, _all_rows(slots, plan.body), title)
    (knobs,) = slots.values()
    if isinstance(semantics, DecodeAttention):
        assert isinstance(knobs, AttentionKnobs)
        return render_attention(semantics, plan.body, knobs, title)
    assert isinstance(knobs, RowKnobs)
    return render_rows(graph, semantics, plan.body, knobs, title)


def _all_rows(slots: Mapping[int, Knobs], body: str) -> dict[int, LinearKnobs]:
    """A schedule for every specialised M: a slot's own, else the nearest slot's as far as registers allow."""
    result: dict[int, LinearKnobs] = {}
    for m in SPECIALISED:
        knobs = slots[min(slots, key=lambda slot: (abs(math.log2(slot / m)), slot))]
        assert isinstance(knobs, LinearKnobs)
        rows, unroll = knobs.rows, knobs.unroll
        while not LinearKnobs(rows, unroll).fits(m, body) and rows * unroll > 1:
            rows, unroll = (rows, unroll // 2) if unroll > 1 else (rows // 2, unroll)
        result[m] = LinearKnobs(rows, unroll, knobs.ahead)
    return result

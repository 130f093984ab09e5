"""The ledger curve as inline SVG, drawn without a script and coloured by the page's CSS classes.

Geometry is in SVG user units; the picture scales with its column, so type stays readable at 390 px wide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape as escape_markup
from xml.sax.saxutils import quoteattr

from integrator.report.clean import one_line
from integrator.report.schema import CurvePoint, Report, tag

WIDTH, HEIGHT = 460.0, 312.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 22.0, 30.0, 46.0


def escape(text: str) -> str:
    """Text from outside, harmless in a terminal's eyes and in markup."""
    return escape_markup(one_line(text))


def nice_step(span: float, ticks: int = 5) -> float:
    """A step of 1, 2 or 5 times a power of ten that cuts ``span`` into about ``ticks`` parts.

    >>> nice_step(17.0)
    5.0
    """
    if span <= 0:
        return 1.0
    raw = span / ticks
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= raw * 0.999)


@dataclass(frozen=True)
class Axes:
    """Maps ledger positions and tokens/s to user units."""

    positions: int
    top: float  # tokens/s at the upper edge

    def x(self, position: int) -> float:
        span = WIDTH - LEFT - RIGHT
        inset = span / (2 * max(self.positions, 1))
        return LEFT + inset + (span - 2 * inset) * position / max(self.positions - 1, 1)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top


def curve_svg(report: Report, batch: int) -> str:
    """One batch's ledger as an ``<svg>`` element; everything that came from outside is escaped."""
    points = report.points(batch)
    best = report.best_rung(batch)
    highest = max(
        [p.ci_high for p in points]
        + [p.projected_tokens_per_s or 0.0 for p in points]
        + [best.tokens_per_s if best else 0.0]
    )
    step = nice_step(highest or 1.0)
    axes = Axes(positions=len(points), top=step * math.ceil((highest or 1.0) * 1.04 / step))
    parts = [_grid(axes, step), _ticks(axes, points)]
    if best is not None:
        above = room_above_line(points, best.tokens_per_s)
        parts.append(_stock_line(axes, best.tokens_per_s, best.name, above))
    parts.append(_projection(axes, points))
    parts.append(_measured(axes, points, report.speedup(batch)))
    label = _description(points, batch)
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
        f"aria-label={quoteattr(label)} data-batch={quoteattr(str(batch))}>{''.join(parts)}</svg>"
    )


def label_floor(points: Sequence[CurvePoint], ticks: int) -> float:
    """The highest tokens/s drawn over the last ``ticks`` positions: a label above it hides nothing."""
    last = points[-ticks:]
    return max(max(p.ci_high, p.projected_tokens_per_s or 0.0) for p in last)


def _description(points: Sequence[CurvePoint], batch: int) -> str:
    kept = [p for p in points if p.kept]
    if not kept:
        return f"Batch {batch}: no measurements."
    return (
        f"Batch {batch}: tokens per second rise from {kept[0].tokens_per_s:.1f} to {kept[-1].tokens_per_s:.1f} "
        f"with {sum(p.family is not None for p in kept)} grafts; {len(points) - len(kept)} were rolled back."
    )


def _grid(axes: Axes, step: float) -> str:
    rows = []
    for index in range(round(axes.top / step) + 1):
        value = index * step
        y = axes.y(value)
        rows.append(
            f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    rows.append(f'<text class="tick unit" x="{LEFT - 34:g}" y="14">tokens/s</text>')
    return "".join(rows)


def _ticks(axes: Axes, points: Sequence[CurvePoint]) -> str:
    marks = []
    for point in points:
        name = point.label if point.family is None else tag(point.family)
        style = "tick name" + (" plain" if point.family is None else "") + ("" if point.kept else " dropped")
        # Words are wider than letters: among many ticks, the second word goes one line down.
        lower = 13 if point.label == "graph" and len(points) > 9 else 0
        marks.append(
            f'<text class="{style}" x="{axes.x(point.position):.1f}" y="{HEIGHT - BOTTOM + 20 + lower:g}" '
            f'text-anchor="middle">{escape(name)}</text>'
        )
    if len(points) > 1:
        marks.append(
            f'<text class="tick unit" x="{WIDTH - RIGHT:g}" y="{HEIGHT - 6:g}" text-anchor="end">'
            "grafts, in the order they landed</text>"
        )
    return "".join(marks)


def room_above_line(points: Sequence[CurvePoint], value: float) -> bool:
    """True if the curve's earlier part stays below ``value``, so that a label fits above the line's left end."""
    early = points[: max(1, round(0.6 * len(points)))]
    return all(max(p.tokens_per_s, p.projected_tokens_per_s or 0.0) < value for p in early)


def _stock_line(axes: Axes, value: float, name: str, above: bool) -> str:
    y = axes.y(value)
    x, anchor, text = (LEFT + 4, "start", y - 6) if above else (WIDTH - RIGHT, "end", y + 15)
    return (
        f'<line class="stock" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="stock-name" x="{x:g}" y="{text:.1f}" text-anchor="{anchor}">'
        f"<title>{escape(name)}</title>best stock, {value:.1f}</text>"
    )


def _projection(axes: Axes, points: Sequence[CurvePoint]) -> str:
    known = [
        (axes.x(p.position), axes.y(p.projected_tokens_per_s)) for p in points if p.projected_tokens_per_s
    ]
    if len(known) < 2:
        return ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
    dots = "".join(f'<circle class="projected-dot" cx="{x:.1f}" cy="{y:.1f}" r="2.4"/>' for x, y in known)
    return f'<polyline class="projected" points="{path}"/>{dots}'


def _measured(axes: Axes, points: Sequence[CurvePoint], speedup: float | None) -> str:
    kept = [p for p in points if p.kept]
    # A graft that is rolled back in the end is still in every later rung of the ladder: the line goes through it.
    path = " ".join(f"{axes.x(p.position):.1f},{axes.y(p.tokens_per_s):.1f}" for p in points)
    parts = [f'<polyline class="measured" points="{path}"/>'] if len(points) > 1 else []
    parts.extend(_mark(axes, point) for point in points)
    if kept:
        last = kept[-1]
        times = f" ({speedup:.2f}×)" if speedup is not None else ""
        x, anchor = axes.x(last.position), "end" if last.position > len(points) / 2 else "start"
        shift = 10.0 if anchor == "end" else -10.0
        parts.append(
            f'<text class="value" x="{x + shift:.1f}" y="{axes.y(label_floor(points, 4)) - 9:.1f}" '
            f'text-anchor="{anchor}">{last.tokens_per_s:.1f}{times}</text>'
        )
    return "".join(parts)


def _mark(axes: Axes, point: CurvePoint) -> str:
    x, y = axes.x(point.position), axes.y(point.tokens_per_s)
    low, high = axes.y(point.ci_low), axes.y(point.ci_high)
    name = point.label if point.family is None else point.family.value
    tip = f"{name}: {point.tokens_per_s:.2f} tokens/s (95 % CI {point.ci_low:.2f}-{point.ci_high:.2f})"
    if not point.kept:
        tip += f", rolled back: {point.reason}"
    style = "kept" if point.kept else "dropped"
    bar = (
        f'<path class="error {style}" d="M{x:.1f} {low:.1f}V{high:.1f}'
        f'M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"/>'
    )
    if point.kept:
        dot = f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4.2"/>'
    else:
        dot = f'<path class="cross" d="M{x - 4:.1f} {y - 4:.1f}l8 8M{x + 4:.1f} {y - 4:.1f}l-8 8"/>'
    return f"<g><title>{escape(tip)}</title>{bar}{dot}</g>"

"""``ledger.png``: the cumulative curve as a picture, in colours that survive colour blindness and print."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from integrator.report.chart import label_floor, room_above_line
from integrator.report.clean import one_line
from integrator.report.schema import CurvePoint, Report, tag

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, the usual safe choice; shapes and dashes say the same once more without colour.
MEASURED, PROJECTED, STOCK, DROPPED = "#0072B2", "#B37400", "#D55E00", "#9A3D6E"
INK, SOFT, LINE = "#1c1e21", "#5d636b", "#e4e1d9"


def write_picture(report: Report, path: Path) -> bool:
    """Draw one panel a batch. Returns False, and writes nothing, if there is no curve yet. Raises OSError."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    batches = report.batches
    if not batches:
        return False
    # DejaVu is matplotlib's own, the same on every machine; a name with dollar signs is no formula.
    with rc_context({"font.family": "DejaVu Sans", "text.parse_math": False}):
        widths = [min(max(4.6, 0.4 * len(report.points(batch)) + 0.9), 9.0) for batch in batches]
        figure = Figure(figsize=(0.5 + sum(widths), 4.5), dpi=170, facecolor="white", layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(batches), squeeze=False, width_ratios=widths)[0]
        for panel, batch in zip(panels, batches, strict=True):
            _draw_panel(panel, report, batch)
        panels[0].set_ylabel("tokens/s, whole model", color=SOFT, fontsize=10)
        figure.suptitle(_title(report), x=0.012, ha="left", fontsize=13.5, fontweight="bold", color=INK)
        figure.supxlabel(
            _key(report, columns=round(sum(widths) * 15)), x=0.012, ha="left", fontsize=8.5, color=SOFT
        )
        handles, labels = _legend_entries(panels)
        panels[0].legend(handles, labels, loc="upper left", frameon=False, fontsize=9, labelcolor=SOFT)
        figure.savefig(path, format="png", metadata={"Software": "kernelgraft"})
    return True


def _title(report: Report) -> str:
    settings = report.settings
    threads = f"{settings.threads} thread{'' if settings.threads == 1 else 's'}"
    return one_line(f"{settings.model}, {settings.dtype}, {settings.device}, {threads}", limit=90)


def _key(report: Report, columns: int) -> str:
    """The letters under the ticks spelled out, in lines of about ``columns`` characters."""
    families = sorted({p.family for p in report.curve if p.family is not None}, key=lambda f: f.order)
    return textwrap.fill("   ".join(f"{tag(family)}\u00a0{family.value}" for family in families), columns)


def _draw_panel(panel: Axes, report: Report, batch: int) -> None:
    points = report.points(batch)
    kept = [point for point in points if point.kept]
    _draw_ground(panel, points)
    best = report.best_rung(batch)
    if best is not None:
        above = room_above_line(points, best.tokens_per_s)
        panel.axhline(best.tokens_per_s, color=STOCK, linewidth=1.5, dashes=(6, 3), zorder=1.5)
        panel.annotate(
            f"best stock: {one_line(best.name, 60).removeprefix('stock ')}, {best.tokens_per_s:.1f}",
            (0.0 if above else 1.0, best.tokens_per_s),
            xycoords=("axes fraction", "data"),
            xytext=(4, 4) if above else (-2, -5),
            textcoords="offset points",
            ha="left" if above else "right",
            va="bottom" if above else "top",
            fontsize=8.5,
            color=STOCK,
        )
    projected = [p for p in points if p.projected_tokens_per_s]
    panel.plot(
        [p.position for p in projected],
        [p.projected_tokens_per_s or 0.0 for p in projected],
        color=PROJECTED,
        linewidth=1.2,
        linestyle=(0, (1, 2.2)),
        marker="D",
        markersize=3.2,
        markerfacecolor="white",
        label="projected (Amdahl)",
        zorder=2,
    )
    panel.plot(
        [p.position for p in points], [p.tokens_per_s for p in points], color=MEASURED, linewidth=2, zorder=3
    )
    _draw_bars(panel, kept, MEASURED, "o", "measured, kept")
    _draw_bars(panel, [p for p in points if not p.kept], DROPPED, "x", "measured, rolled back")
    speedup = report.speedup(batch)
    if kept and speedup is not None:
        last = kept[-1]
        panel.annotate(
            f"{last.tokens_per_s:.1f}  ({speedup:.2f}×)",
            (last.position, label_floor(points, 4)),
            xytext=(6, 7),
            textcoords="offset points",
            ha="right",
            fontsize=11,
            fontweight="bold",
            color=MEASURED,
        )
    panel.set_title(f"batch {batch}", loc="left", fontsize=11, color=INK)


def _draw_ground(panel: Axes, points: tuple[CurvePoint, ...]) -> None:
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.spines["bottom"].set_color(LINE)
    panel.grid(axis="y", color=LINE, linewidth=0.9)
    panel.set_axisbelow(True)
    panel.tick_params(length=0, labelcolor=SOFT, labelsize=9.5)
    panel.set_xticks(
        [p.position for p in points], [p.label if p.family is None else tag(p.family) for p in points]
    )
    for tick, point in zip(panel.get_xticklabels(), points, strict=True):
        tick.set_color(INK if point.kept else SOFT)
        tick.set_fontweight("bold" if point.kept and point.family is not None else "normal")
    top = max(max(p.ci_high, p.projected_tokens_per_s or 0.0) for p in points)
    panel.set_ylim(0.0, top * 1.25 or 1.0)  # room for the legend and the last value
    panel.set_xlim(-0.5, len(points) - 0.5)


def _draw_bars(panel: Axes, points: list[CurvePoint], colour: str, marker: str, label: str) -> None:
    if not points:
        return
    below = [max(p.tokens_per_s - p.ci_low, 0.0) for p in points]
    above = [max(p.ci_high - p.tokens_per_s, 0.0) for p in points]
    panel.errorbar(
        [p.position for p in points],
        [p.tokens_per_s for p in points],
        yerr=[below, above],
        fmt=marker,
        color=colour,
        markersize=6,
        markeredgewidth=1.8 if marker == "x" else 1.0,
        markeredgecolor=colour if marker == "x" else "white",
        elinewidth=1.3,
        capsize=3,
        label=label,
        zorder=4,
    )


def _legend_entries(panels: list[Axes]) -> tuple[list[object], list[str]]:
    """One entry a label over all panels: a mark that occurs in the second panel only must be explained too."""
    entries: dict[str, object] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    return list(entries.values()), list(entries)

"""``report.html``: one self-contained page, no script, no network, everything from outside escaped.

The page's content-security policy allows exactly one style sheet, by hash, and nothing else: even markup that
slipped through the escaping could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib import resources

from integrator.report.chart import curve_svg
from integrator.report.clean import plain
from integrator.report.schema import FamilyRow, Graft, Report, tag
from integrator.report.terminal import duration

_LEXERS = {"cpp": "cpp", "cuda": "cuda", "triton": "python"}
_BAR_WIDTH = 132.0


def render_html(report: Report) -> str:
    """The whole page as text."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        finalize=_harmless,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(tag=tag, times=_times, percent=_percent)
    style = _template("report.css") + _highlight_css()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.from_string(_template("report.html.j2")).render(
        report=report,
        style=style,
        style_hash=f"sha256-{digest}",
        title=page_title(report),
        subtitle=_subtitle(report),
        charts=[(batch, curve_svg(report, batch)) for batch in report.batches],
        key=_key(report),
        family_tables=_family_tables(report),
        kernels=[(graft, highlight(graft)) for graft in report.grafts],
        facts=_facts(report),
        version=report.versions.get("kernelgraft", ""),
    )


def page_title(report: Report) -> str:
    """The headline as a sentence: the smallest speedup over all batches is the one that is claimed."""
    name = report.settings.model
    if not report.headline:
        return f"{name}: no measured speedup yet"
    worst = min(report.headline, key=lambda entry: entry.speedup)
    if worst.ci_high < 1.0 or worst.speedup < 1.0:
        return f"{name} is slower than its best stock rung at batch {worst.batch}: {worst.speedup:.2f}×"
    bound = "" if len(report.headline) == 1 else "at least "
    return f"{name} decodes {bound}{worst.speedup:.2f}× as fast as its best stock rung"


def highlight(graft: Graft) -> str:
    """A kernel's source as highlighted, escaped HTML."""
    from pygments import highlight as pygmentize
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    lexer = get_lexer_by_name(_LEXERS.get(graft.language, "text"), stripall=False)
    return pygmentize(plain(graft.source), lexer, HtmlFormatter(cssclass="hl"))


def _template(name: str) -> str:
    return (resources.files("integrator.report") / "templates" / name).read_text(encoding="utf-8")


def _highlight_css() -> str:
    from pygments.formatters import HtmlFormatter

    def rules(style: str) -> str:
        lines = HtmlFormatter(style=style, cssclass="hl").get_style_defs(".hl").splitlines()
        # The page has its own ground; only the token colours are wanted.
        return "\n".join(line for line in lines if line.startswith(".hl .") and "linenos" not in line)

    return f"\n{rules('default')}\n@media (prefers-color-scheme: dark) {{\n{rules('github-dark')}\n}}\n"


def _harmless(value: object) -> object:
    """Every expression of the template passes here: text loses its control characters, then is escaped."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return plain(value)
    return value


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}×"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.1f} %"


def _subtitle(report: Report) -> str:
    settings = report.settings
    parts = [
        settings.dtype,
        settings.device,
        f"{settings.threads} thread{'' if settings.threads == 1 else 's'}",
    ]
    if settings.prompt or settings.tokens:
        parts.append(f"prompt {settings.prompt}, {settings.tokens} new tokens")
    cpu = report.machine.get("cpu") or report.machine.get("name", "")
    if cpu:
        parts.append(cpu)
    return " · ".join(part for part in parts if part)


def _key(report: Report) -> list[tuple[str, str]]:
    families = {point.family for point in report.curve if point.family is not None}
    return [(tag(family), family.value) for family in sorted(families, key=lambda f: f.order)]


def _family_tables(report: Report) -> list[tuple[int, list[tuple[FamilyRow, str]]]]:
    batches = sorted({row.batch for row in report.families})
    longest = max((row.isolated_speedup or 1.0 for row in report.families), default=1.0)
    # A 14x kernel of a 2 % family must not squeeze every other bar to nothing.
    scale = min(max(longest, 2.0), 6.0)
    return [
        (batch, [(row, _bars(row, scale)) for row in report.families if row.batch == batch])
        for batch in batches
    ]


def _bars(row: FamilyRow, scale: float) -> str:
    def bar(value: float | None, y: int, style: str) -> str:
        if value is None:
            return ""
        length = _BAR_WIDTH * min(value, scale) / scale
        base = _BAR_WIDTH * min(value, 1.0) / scale
        more = (
            f'<rect class="{style}" x="{base:.1f}" y="{y}" width="{max(length - base, 0):.1f}" height="9"/>'
        )
        return f'<rect class="bar-base" x="0" y="{y}" width="{base:.1f}" height="9"/>{more}'

    inner = bar(row.isolated_speedup, 2, "bar-isolated") + bar(row.measured_gain, 15, "bar-measured")
    return f'<svg class="bars" viewBox="0 0 {_BAR_WIDTH:g} 26" aria-hidden="true">{inner}</svg>'


def _facts(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    settings = report.settings
    setup = [
        ("model", settings.model),
        ("device", settings.device),
        ("dtype", settings.dtype),
        ("attention", settings.attention),
        ("batches", ", ".join(str(batch) for batch in settings.batches)),
        ("prompt, tokens", f"{settings.prompt}, {settings.tokens}"),
        ("threads", str(settings.threads)),
        ("policy", settings.policy),
        ("budget", settings.budget),
    ]
    stages = [(timing.stage, duration(timing.seconds)) for timing in report.stages]
    if report.peak_memory_bytes:
        stages.append(("peak memory", f"{report.peak_memory_bytes / 2**30:.2f} GiB"))
    groups = [
        ("Settings", setup),
        ("Machine", list(report.machine.items())),
        ("Versions", list(report.versions.items())),
        ("Time and memory", stages),
        ("Scores", [(name, f"{value:.3g}") for name, value in report.scores.items()]),
        ("Parity", [(name, _scalar(value)) for name, value in report.parity.items()]),
    ]
    return [(heading, _filled(pairs)) for heading, pairs in groups if _filled(pairs)]


def _filled(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in pairs if value]


def _scalar(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""report.json, the page and the picture, from synthetic ledgers and from run folders on disk."""

import html
import json
import re
from html.parser import HTMLParser

import pytest

from extractor.families import Family
from extractor.run_folder import RunFolder, RunManifest, RunMissing
from integrator.report import build_report, write_report
from integrator.report.build import CorruptLedger, family_rows, from_ledger
from integrator.report.chart import curve_svg, nice_step, room_above_line
from integrator.report.html import highlight, page_title, render_html
from integrator.report.picture import write_picture
from integrator.report.schema import CurvePoint, Graft, Headline, Rejected, Report, Workbench, tag

PNG = b"\x89PNG\r\n\x1a\n"


class Tags(HTMLParser):
    """Collects every tag and attribute of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        self.attributes += attributes


def manifest(**changes):
    settings = {
        "model": "preset:qwen3-synthetic",
        "dtype": "bfloat16",
        "device": "cpu",
        "attention": "eager",
        "batches": (1, 4),
        "prompt": 32,
        "tokens": 32,
        "created": "2026-12-01T09:00:00+00:00",
        "versions": {"torch": "2.13.0"},
    }
    return RunManifest(**{**settings, **changes})


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "a run with spaces").create(manifest())


@pytest.fixture
def full(make_report):
    return make_report()


def test_headline_comes_first_and_has_the_promised_keys(full):
    text = json.loads(full.model_dump_json())
    assert list(text)[:2] == ["schema_version", "headline"]
    promised = {
        "model",
        "device",
        "dtype",
        "batch",
        "rung",
        "stock_tokens_per_s",
        "patched_tokens_per_s",
        "speedup",
        "ci_low",
        "ci_high",
    }
    assert [entry["batch"] for entry in text["headline"]] == [1, 4]
    assert all(promised <= entry.keys() for entry in text["headline"])
    assert Report.model_validate_json(full.model_dump_json()) == full


def test_curve_has_every_configuration_and_names_rollbacks(make_ledger):
    ledger = make_ledger()
    curve = [point for point in from_ledger(ledger).curve if point.batch == 1]
    assert [point.label for point in curve[:2]] == ["stock", "graph"]
    assert curve[-1].label == "final"
    assert len(curve) == len(ledger.batches[0].configurations) + 1
    dropped = [point for point in curve if not point.kept]
    assert [point.family for point in dropped] == [Family.RESIDUAL_RMSNORM]
    assert dropped[0].reason.startswith("slower: ")


def test_family_rows_put_isolated_beside_measured(make_ledger):
    batch = make_ledger().batches[0]
    rows = {row.family: row for row in family_rows(batch, {Family.FFN_GATE_UP: 0.25, Family.RMSNORM: 0.02})}
    gate = rows[Family.FFN_GATE_UP]
    assert (gate.share, gate.isolated_speedup, gate.kept) == (0.25, pytest.approx(2.8), True)
    assert gate.measured_gain == pytest.approx(1.17)
    assert rows[Family.RMSNORM].isolated_speedup is None  # it takes time and nobody found a kernel for it
    assert not rows[Family.RESIDUAL_RMSNORM].kept


def test_two_kernels_of_a_family_are_combined_by_share(make_ledger):
    batch = make_ledger().batches[0]
    down = batch.grafts[0]
    twice = batch.model_copy(
        update={
            "grafts": (
                down,
                down.model_copy(update={"graft": "other", "share": 0.3, "isolated_speedup": 1.0}),
            )
        }
    )
    (row,) = family_rows(twice, {})
    assert row.share == pytest.approx(0.4)
    assert row.isolated_speedup == pytest.approx(0.4 / (0.1 / 2.3 + 0.3))


def test_omitted_rungs_are_named(full):
    assert [rung.name for rung in full.rungs_left_out] == ["stock Inductor, freezing + max-autotune"]
    assert "freezing + max-autotune" in full.headline[0].sentence()
    assert [rung.best for rung in full.rungs if rung.batch == 1] == [False, True]


def test_page_is_one_file_without_script_or_network(full):
    page = render_html(full)
    seen = Tags(page)
    assert not {"script", "iframe", "object", "embed", "base", "form", "img"} & set(seen.tags)
    addresses = [value for name, value in seen.attributes if name in ("src", "href", "action", "srcset")]
    assert addresses == ["data:,"]
    assert "url(" not in page
    assert "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-" in page
    assert not [name for name, _ in seen.attributes if name == "style" or name.startswith("on")]


def test_style_hash_matches_the_style(full):
    import base64
    import hashlib

    page = render_html(full)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in page


def test_page_shows_curve_kernels_rejections_and_facts(full):
    page = render_html(full)
    for batch in (1, 4):
        assert f'data-batch="{batch}"' in page
    assert page.count("<details>") == len(full.grafts)
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    for words in ("residual_rmsnorm", "slower", "the step took 1.03x as long", "SYNTHETIC CPU", "kg_forward"):
        assert words in text


def test_hostile_text_is_inert_everywhere(make_report, hostile):
    page = render_html(make_report(text=hostile))
    seen = Tags(page)
    assert not {"script", "img"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "\x1b" not in page
    assert "\u202e" not in page
    # model, rung note, reason, task id, notes, source, policy, machine, version: all of them arrived, escaped
    assert html.unescape(page).count("document.title='owned'") >= 9


def test_highlighted_source_reads_back_exactly():
    source = '#include "kg.h"\n// </pre><b>&amp;\ntemplate <int N> void f() { x<1>(a & b); }\n'
    graft = Graft(
        task_id="t", family=Family.FFN_DOWN, language="cpp", candidate_sha="0", speedup=2.0, source=source
    )
    assert html.unescape(re.sub(r"<[^>]+>", "", highlight(graft))).strip() == source.strip()


def test_title_claims_the_smallest_speedup(full):
    low = full.headline[0].model_copy(update={"speedup": 1.25})
    changed = full.model_copy(update={"headline": (low, full.headline[1])})
    assert "at least 1.25× as fast" in page_title(changed)
    assert "no measured speedup" in page_title(full.model_copy(update={"headline": ()}))


def test_title_is_honest_about_a_slowdown(full):
    slow = full.headline[0].model_copy(update={"speedup": 0.9})
    assert "slower" in page_title(full.model_copy(update={"headline": (slow,)}))


def test_svg_error_bars_and_line(full):
    svg = curve_svg(full, 1)
    points = full.points(1)
    assert svg.count('<circle class="dot"') == sum(point.kept for point in points)
    assert svg.count('class="cross"') == sum(not point.kept for point in points)
    assert svg.count('class="error') == len(points)
    assert svg.count('class="stock"') == 1
    line = re.search(r'class="measured" points="([^"]+)"', svg).group(1).split()
    heights = [float(pair.split(",")[1]) for pair in line]
    assert heights[-1] < heights[0]  # SVG grows downwards: the curve rises


@pytest.mark.parametrize(
    ("span", "step"), [(0.0, 1.0), (0.7, 0.2), (9.0, 2.0), (17.0, 5.0), (3200.0, 1000.0)]
)
def test_nice_step(span, step):
    assert nice_step(span) == pytest.approx(step)


def test_picture_is_written_even_for_a_name_with_dollars(make_report, tmp_path, hostile):
    path = tmp_path / "ledger.png"
    assert write_picture(make_report(text=hostile), path)
    assert path.read_bytes().startswith(PNG)


def test_picture_needs_a_curve(tmp_path):
    empty = Report(settings=Workbench(model="m"))
    assert not write_picture(empty, tmp_path / "ledger.png")
    assert not (tmp_path / "ledger.png").exists()


def test_every_family_has_a_short_unique_tag():
    tags = [tag(family) for family in Family]
    assert len(set(tags)) == len(tags)
    assert all(1 <= len(text) <= 2 for text in tags)


def test_report_of_an_unfinished_run_says_what_is_missing(run):
    report = write_report(run)
    assert not report.complete
    assert [line.partition("; ")[2] for line in report.missing] == [
        "run `kernelgraft extract`",
        "run `kernelgraft optimize`",
        "run `kernelgraft integrate`",
    ]
    assert json.loads(run.report_path.read_text(encoding="utf-8"))["headline"] == []
    assert "This run is not finished" in run.page_path.read_text(encoding="utf-8")
    assert not run.figure_path.exists()


def test_report_of_a_measured_run_writes_three_files(run, make_ledger):
    run.ledger_path.write_text(make_ledger().model_dump_json(), encoding="utf-8")
    report = write_report(run)
    assert report.headline[0].speedup == pytest.approx(make_ledger().batches[0].headline.speedup)
    assert run.figure_path.read_bytes().startswith(PNG)
    assert run.page_path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(path.name for path in run.path.iterdir()) == [
        "ledger.json",
        "ledger.png",
        "report.html",
        "report.json",
        "run.json",
        "tasks",
    ]


def test_damaged_ledger_is_one_sentence(run):
    run.ledger_path.write_text('{"schema_version": 1}', encoding="utf-8")
    with pytest.raises(
        CorruptLedger, match=r"ledger\.json: invalid at .* measure again with `kernelgraft integrate`"
    ):
        build_report(run)


def test_no_run_is_one_sentence(tmp_path):
    with pytest.raises(RunMissing, match="no run in"):
        build_report(RunFolder(tmp_path / "nothing"))


def test_records_refuse_unknown_fields():
    with pytest.raises(ValueError, match="extra"):
        Rejected(task_id="t", family=Family.ROUTER, reason="slower", colour="red")
    assert Headline.model_fields["ci_low"].annotation is float


@pytest.mark.parametrize(("line", "room"), [(30.0, True), (10.5, False), (15.0, False)])
def test_the_best_stock_label_keeps_clear_of_the_curve(line, room):
    rates = [10.0, 11.0, 16.0, 20.0, 29.0]
    points = [
        CurvePoint(batch=1, position=i, label=str(i), tokens_per_s=rate, ci_low=rate, ci_high=rate)
        for i, rate in enumerate(rates)
    ]
    assert room_above_line(points, line) is room

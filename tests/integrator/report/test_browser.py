"""The report page in headless Chromium: nothing on the console, the curve drawn, hostile text inert.

``--dump-dom`` prints the page after everything on it has run; console messages come on stderr.
"""

import html
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from integrator.report.html import render_html

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--log-level=0",
)
LIMIT_S = 60

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)"),
]


def browse(path, *flags):
    """(DOM after load, console messages) of a local page, in a fresh profile."""
    with tempfile.TemporaryDirectory(prefix="kernelgraft-chromium-") as profile:
        answer = subprocess.run(
            [CHROMIUM, *FLAGS, *flags, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_S,
            env={**os.environ, "HOME": profile},
        )
    console = [line for line in answer.stderr.splitlines() if ":CONSOLE" in line]
    return answer.stdout, console


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    """The instrument itself: a page that does misbehave must be seen to."""
    page = "<title>quiet</title><p id=x></p><script>document.title='owned';console.error('loud')</script>"
    return browse(write(tmp_path_factory.mktemp("control") / "control.html", page))


def test_the_instrument_sees_scripts_and_console_errors(control):
    dom, console = control
    assert "<title>owned</title>" in dom
    assert any("loud" in line for line in console)


def test_page_is_quiet_and_has_its_curves(tmp_path, make_report):
    report = make_report()
    dom, console = browse(write(tmp_path / "report.html", render_html(report)))
    assert console == []
    assert dom.count('<svg class="chart"') == len(report.batches)
    assert all(len(line.split()) > 5 for line in re.findall(r'class="measured" points="([^"]+)"', dom))


def test_hostile_text_neither_runs_nor_breaks_the_page(tmp_path, make_report, hostile):
    dom, console = browse(write(tmp_path / "report.html", render_html(make_report(text=hostile))))
    assert "<title>owned</title>" not in dom
    assert console == []
    assert "<script" not in dom
    assert "<footer>" in dom  # nothing closed the page early


def test_even_unescaped_markup_cannot_run(tmp_path, make_report):
    attack = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    page = render_html(make_report()).replace("<footer>", attack + "<footer>")
    dom, console = browse(write(tmp_path / "report.html", page))
    assert "<title>owned</title>" not in dom
    assert any("Content Security Policy" in line for line in console)


def test_page_fits_a_phone(tmp_path, make_report):
    inner = html.escape(render_html(make_report()), quote=True)
    frame = (
        f'<title>?</title><iframe width=390 height=800 style="border:0" srcdoc="{inner}"></iframe>'
        "<script>onload=()=>{const e=frames[0].document.documentElement;"
        "document.title=[e.scrollWidth-e.clientWidth,e.clientWidth>=360]}</script>"
    )
    dom, _ = browse(write(tmp_path / "phone.html", frame))
    assert "<title>0,true</title>" in dom  # nothing sticks out to the right

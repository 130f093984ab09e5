"""Progress on a terminal and in a log, tables, and text that tries to repaint the screen."""

import io
from contextlib import suppress

import pytest
from rich.console import Console

from extractor.progress import stage
from integrator.report.clean import one_line, plain, tolerate_encoding
from integrator.report.tables import print_headline, print_ledger, print_search
from integrator.report.terminal import LineProgress, LiveProgress, make_console, remaining, watcher


class Clock:
    """Seconds under the test's control."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    lines = []
    return lines, LineProgress(lines.append, clock)


def console(**options):
    return Console(file=io.StringIO(), highlight=False, markup=False, width=120, **options)


def test_lines_speak_at_start_end_and_now_and_then(log, clock):
    lines, progress = log
    with stage(progress, "optimize", 100):
        for step in range(100):
            clock.now += 0.5
            progress.advance(f"task {step}")
    assert lines[0] == "optimize: started, 100 steps"
    assert lines[1] == "optimize: 10/100, about 45 s left (task 9)"
    assert lines[-1] == "optimize: done, 50 s"
    assert len(lines) == 12  # one in five seconds, whatever the number of steps


def test_lines_tell_an_early_end(log):
    lines, progress = log
    with suppress(KeyboardInterrupt), stage(progress, "integrate", 4):
        progress.advance()
        raise KeyboardInterrupt
    assert lines[-1] == "integrate: ended after 1 of 4, 0.0 s"


def test_messages_cannot_repaint_the_terminal(log):
    lines, progress = log
    progress.message("best \x1b[2J\x1b]0;owned\x07 \u202ekernel\nsecond line")
    assert lines == ["  best \\x1b[2J\\x1b]0;owned\\x07 \\u202ekernel second line"]


def test_live_bars_show_nested_stages_and_leave_a_line_each():
    screen = console(force_terminal=True)
    progress = LiveProgress(screen)
    with stage(progress, "outer", 2):
        progress.advance("first")
        with stage(progress, "inner", 1):
            progress.message("[red]not markup[/red] \x1b[31m")
            progress.advance()
        progress.advance()
    text = screen.file.getvalue()
    assert "inner: done" in text
    assert "outer: done" in text
    assert "[red]not markup[/red] \\x1b[31m" in text
    assert progress._bars is None  # the display thread is gone


def test_watcher_chooses_by_what_the_output_is(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(watcher(console(force_terminal=True)), LiveProgress)
    assert isinstance(watcher(console(force_terminal=False)), LineProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(watcher(console(force_terminal=True)), LineProgress)


@pytest.mark.parametrize(
    ("elapsed", "done", "total", "left"), [(10, 2, 6, 20), (10, 0, 6, None), (3, 7, 6, 0), (3, 1, 0, None)]
)
def test_remaining(elapsed, done, total, left):
    assert remaining(elapsed, done, total) == left


def test_tables_show_rollbacks_rungs_and_headline(make_report):
    screen = console()
    report = make_report()
    print_search(screen, report.tasks)
    print_ledger(screen, report)
    print_headline(screen, report)
    text = screen.file.getvalue()
    assert "rolled back, slower" in text
    assert "+ AD attention_decode" in text
    assert "Not measured: stock Inductor, freezing + max-autotune" in text
    for entry in report.headline:
        assert entry.sentence() in text.replace("\n", " ")


def test_tables_escape_hostile_text(make_report, hostile):
    screen = console()
    report = make_report(text=hostile)
    print_search(screen, report.tasks)
    print_ledger(screen, report)
    print_headline(screen, report)
    assert "\x1b" not in screen.file.getvalue()


def test_no_color_is_obeyed(monkeypatch, make_report):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "")
    screen = console(force_terminal=True)
    print_headline(screen, make_report())
    assert "\x1b[3" not in screen.file.getvalue()  # bold may stay, colour may not


def test_a_pipe_gets_room_for_whole_tables(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert make_console().width >= 120


def test_every_encoding_can_be_written():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    tolerate_encoding(stream)
    stream.write("2.3× → é ✓ 模")
    stream.flush()
    assert raw.getvalue() == b"2.3x -> ? + ?"


def test_plain_keeps_letters_and_spells_controls():
    assert plain("naïve 模型\tx\n") == "naïve 模型\tx\n"
    assert plain("a\x00b\x9b31m") == "a\\x00b\\x9b31m"
    assert one_line("a\n b   c" + "d" * 500, limit=8) == "a b cdd…"

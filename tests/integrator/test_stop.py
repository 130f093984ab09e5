"""Signals end a run in order, even where a library swallows the exception."""

import os
import signal
from contextlib import suppress

import pytest

from extractor.progress import SilentProgress, stage
from integrator.report.terminal import Attentive
from integrator.stop import Stop


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_swallowed_signal_is_raised_again_at_the_next_step(number, status):
    before = signal.getsignal(number)
    done = 0
    with Stop() as stop:
        progress = Attentive(SilentProgress(), stop.check)
        with suppress(KeyboardInterrupt), stage(progress, "work", 3):
            progress.advance()
            with suppress(KeyboardInterrupt):  # some library's callback
                os.kill(os.getpid(), number)
            done = 1
            progress.advance()
            done = 2
        assert done == 1
        assert stop.status == status
    assert signal.getsignal(number) == before


def test_a_hang_up_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        with Stop() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            stop.check()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_without_a_signal_nothing_is_raised():
    with Stop() as stop:
        stop.check()


def test_last_words_are_not_interrupted():
    with Stop() as stop:
        stop.settle()
        os.kill(os.getpid(), signal.SIGTERM)
        stop.check()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

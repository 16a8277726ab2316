from __future__ import annotations

import io
import threading
import time
from contextlib import redirect_stderr

import pytest
from support.terminal import impatient_terminal

from minisgl.utils import progress
from minisgl.utils.progress import BYTES, ProgressBar, tracked


def test_a_bar_shows_what_is_done_of_how_much() -> None:
    with impatient_terminal() as screen, ProgressBar("sending", 3, "requests") as bar:
        bar.advance()
        bar.advance(2)
    assert "sending" in screen.getvalue()
    assert "requests" in screen.getvalue()
    assert "3/3" in screen.getvalue()
    assert "left" in screen.getvalue()


def test_bytes_are_shown_as_such() -> None:
    with impatient_terminal() as screen, ProgressBar("smollm2", 4_000_000, BYTES) as bar:
        bar.advance_to(1_500_000)
    assert "1.5/4.0 MB" in screen.getvalue()


def test_work_that_counts_nothing_for_long_gets_its_bar_too() -> None:
    with impatient_terminal() as screen, ProgressBar("sending", 3, "requests"):
        while "0/3" not in screen.getvalue():
            time.sleep(0.001)


def test_what_is_over_soon_shows_nothing() -> None:
    with impatient_terminal(patience_s=1e6) as screen:
        assert list(tracked([1, 2, 3], "counting", "numbers")) == [1, 2, 3]
    assert screen.getvalue() == ""


def test_a_hidden_bar_counts_and_is_not_seen() -> None:
    with impatient_terminal() as screen, ProgressBar("sending", 3, "requests", is_hidden=True) as bar:
        bar.advance()
    assert (bar.done, screen.getvalue()) == (1, "")


def test_nothing_is_shown_where_stderr_is_no_terminal() -> None:
    with redirect_stderr(io.StringIO()) as log:
        assert list(tracked([1, 2], "counting", "numbers")) == [1, 2]
    assert log.getvalue() == ""


def test_a_second_bar_beside_the_first_is_not_drawn() -> None:
    with impatient_terminal() as screen:
        with ProgressBar("outer", 2, "parts") as outer:
            outer.advance()
            list(tracked([1], "inner", "parts"))
        assert list(tracked([1], "next", "parts")) == [1]
    assert "inner" not in screen.getvalue()
    assert "next" in screen.getvalue()


def test_an_error_takes_the_bar_away_and_leaves_no_thread() -> None:
    def fail() -> None:
        with ProgressBar("sending", 3, "requests") as bar:
            bar.advance()
            raise ZeroDivisionError

    with impatient_terminal(), pytest.raises(ZeroDivisionError):
        fail()
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert not progress._on_terminal.locked()


def test_stdout_goes_where_it_would_have_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with impatient_terminal() as screen, ProgressBar("sending", 1, "requests") as bar:
        bar.advance()
        print("an answer")
    assert capsys.readouterr().out == "an answer\n"
    assert "an answer" not in screen.getvalue()

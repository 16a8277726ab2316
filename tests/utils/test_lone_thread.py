"""A thread that says whether it is at work."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from minisgl.utils.lone_thread import LoneThread


def test_a_call_keeps_it_busy_until_it_has_ended_or_is_cancelled() -> None:
    go_on = threading.Event()
    with LoneThread("test") as thread:
        assert not thread.is_busy
        running = thread.submit(go_on.wait, 20)
        assert thread.submit(int).cancel()
        assert thread.is_busy
        go_on.set()
        assert running.result()
    assert not thread.is_busy


@pytest.mark.parametrize("fails", [int, lambda: 1 // 0])
def test_a_call_that_is_over_at_once_leaves_nothing_behind(fails: Callable[[], int]) -> None:
    with LoneThread("test") as thread:
        for _ in range(100):
            thread.submit(fails)
    assert not thread.is_busy

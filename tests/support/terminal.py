"""A terminal in place of stderr, on which bars of progress are shown at once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import pytest

from minisgl.utils import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def impatient_terminal(patience_s: float = 0.0) -> Iterator[Terminal]:
    """What is written to stderr meanwhile. Not in a fixture: pytest puts its own stderr back before the test."""
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(Terminal()) as screen:
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "120")
        patch.setattr(progress, "PATIENCE_S", patience_s)
        yield screen

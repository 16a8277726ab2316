"""Loggers of the package. As a library minisgl prints nothing; the command line installs the one handler."""

from __future__ import annotations

import logging
import sys

from minisgl.env import ENV

ROOT = "minisgl"
logging.getLogger(ROOT).addHandler(logging.NullHandler())


def get_logger(name: str) -> logging.Logger:
    """The logger of one module; `name` is its `__name__`, inside the package."""
    assert name == ROOT or name.startswith(f"{ROOT}."), f"logger {name!r} is outside {ROOT!r}"
    return logging.getLogger(name)


def install_handler() -> None:
    """Show the package's messages from ENV.LOG_LEVEL up on stderr, coloured on a terminal. A second call replaces."""
    root = logging.getLogger(ROOT)
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_make_handler())
    root.setLevel(ENV.LOG_LEVEL.value)
    root.propagate = False


def _make_handler() -> logging.Handler:
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        return RichHandler(console=Console(stderr=True), show_path=False)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler

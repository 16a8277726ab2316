"""Loggers of the package. As a library minisgl prints nothing; the command line installs the one handler."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from minisgl.env import ENV

ROOT = "minisgl"
logging.getLogger(ROOT).addHandler(logging.NullHandler())


def get_logger(name: str) -> logging.Logger:
    """The logger of one module; `name` is its `__name__`, inside the package."""
    assert name == ROOT or name.startswith(f"{ROOT}."), f"logger {name!r} is outside {ROOT!r}"
    return logging.getLogger(name)


def install_handler() -> None:
    """Show the package's messages from ENV.LOG_LEVEL up on stderr, as ENV.LOG_FORMAT says. A second call replaces."""
    root = logging.getLogger(ROOT)
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_make_handler())
    root.setLevel(ENV.LOG_LEVEL.value)
    root.propagate = False


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, message; `fields` of a record beside them, a traceback as
    `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _make_handler() -> logging.Handler:
    """Text is coloured on a terminal."""
    as_json = ENV.LOG_FORMAT.value == "json"
    if sys.stderr.isatty() and not as_json:
        from rich.console import Console
        from rich.logging import RichHandler

        return RichHandler(console=Console(stderr=True), show_path=False)
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else text)
    return handler

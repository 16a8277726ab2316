"""How `minisgl serve` logs: lines for people, or every line as a JSON object."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from minisgl.server import access_log, reporter
from minisgl.utils.logging import ROOT

UVICORN = "uvicorn.error"  # its logger for everything but requests


class JsonFormatter(logging.Formatter):
    """time (UTC), level, logger, message; the `fields` of a record beside them, a traceback as `exception`."""

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


def install_logs(*, as_json: bool, requests: bool) -> None:
    """After `install_handler`: start and end, request lines if wanted, uvicorn's warnings, all as JSON if wanted."""
    package = logging.getLogger(ROOT)
    if as_json:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        package.handlers[:] = [handler]
    shown = min(logging.INFO, package.getEffectiveLevel())
    reporter.logger.setLevel(shown)
    access_log.logger.setLevel(shown if requests else logging.WARNING)
    uvicorn = logging.getLogger(UVICORN)
    uvicorn.handlers[:] = package.handlers
    uvicorn.setLevel(max(logging.WARNING, package.getEffectiveLevel()))
    uvicorn.propagate = False

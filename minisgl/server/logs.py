"""What `minisgl serve` logs beside warnings: its start and end, and requests."""

from __future__ import annotations

import logging
import os

from minisgl.env import ENV
from minisgl.server import access_log, reporter
from minisgl.utils.logging import ROOT, install_handler

FOREIGN = ("uvicorn.error", "opentelemetry")  # their warnings look like ours; uvicorn.error has all but requests


def install_logs(*, as_json: bool, requests: bool) -> None:
    """As `install_handler`, and what a server's operator wants to see. as_json holds for the engine's process too."""
    if as_json:
        ENV.LOG_FORMAT.value = os.environ["MINISGL_LOG_FORMAT"] = "json"  # child processes inherit it
    install_handler()
    package = logging.getLogger(ROOT)
    shown = min(logging.INFO, package.getEffectiveLevel())
    reporter.logger.setLevel(shown)
    access_log.logger.setLevel(shown if requests else logging.WARNING)
    for name in FOREIGN:
        _adopt(logging.getLogger(name), package)


def _adopt(logger: logging.Logger, package: logging.Logger) -> None:
    logger.handlers[:] = package.handlers
    logger.setLevel(max(logging.WARNING, package.getEffectiveLevel()))
    logger.propagate = False

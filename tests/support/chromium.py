"""The system's Chromium, for tests of the page. It talks to nobody but the server under test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",  # which root has none of
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
NONE_HERE = f"no Chromium: none of {', '.join(NAMES)} is installed"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Without a window. Where there is none the test is skipped, in CI it fails."""
    path = find_chromium()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(NONE_HERE)
        pytest.skip(NONE_HERE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def find_chromium() -> str | None:
    """Its path."""
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)

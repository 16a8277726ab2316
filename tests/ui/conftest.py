"""One browser for all tests of the page; for each test a tab that has nothing from before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from support.asgi import Api
from support.chromium import chromium
from support.page import PATIENCE_MS, WIDE, OpenPage, Watched
from support.page_server import page_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with chromium() as browser:
        yield browser


@pytest.fixture
def serve() -> Iterator[Callable[[Api], str]]:
    """`serve(api)` is the address of that server, which ends with the test."""
    with ExitStack() as stack:
        yield lambda api: stack.enter_context(page_server(api.app))


@pytest.fixture
def open_page(browser: Browser, serve: Callable[[Api], str]) -> Iterator[OpenPage]:
    with ExitStack() as stack:

        def open_one(api: Api | None = None, *, server: str = "", ready: bool = True, **context: object) -> Page:
            address = server or serve(api or Api())
            tab = browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **context})
            stack.callback(tab.close)
            tab.set_default_timeout(PATIENCE_MS)
            page = tab.new_page()
            watched = Watched(page, address)
            stack.callback(watched.check)
            page.goto(f"{address}/")
            if ready:
                page.locator('.connection[data-state="ready"]').wait_for()
            return page

        yield open_one

"""What holds for every test of the page can fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser
from support import chromium
from support.asgi import Api
from support.page import Watched


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_a_browser_tests_are_skipped_but_fail_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr(chromium, "NAMES", ("no-such-browser",))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no Chromium"), chromium.chromium():
        pass


@pytest.mark.parametrize("deed", ["fetch('http://elsewhere.test/').catch(() => 0)", "console.error('no')", "throw 1"])
def test_a_page_that_asks_others_or_has_an_error_is_noticed(
    browser: Browser, serve: Callable[[Api], str], deed: str
) -> None:
    address, tab = serve(Api()), browser.new_context(bypass_csp=True)
    page = tab.new_page()
    watched = Watched(page, address)
    page.goto(f"{address}/")
    watched.check()
    page.evaluate(f"setTimeout(() => {{ {deed} }})")
    page.wait_for_timeout(200)
    with pytest.raises(AssertionError):
        watched.check()
    tab.close()

"""A tab of the browser with the page in it, and what no test of it may leave unseen."""

from __future__ import annotations

from typing import Protocol
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page
from support.asgi import Api

WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 360, "height": 740}
PATIENCE_MS = 10_000


class OpenPage(Protocol):
    """The fixture `open_page`.

    api, or the address of a server that runs already: whose page it is. ready: wait until the page says that the server
    is ready. What else is given goes to the browser's context, such as viewport, color_scheme, has_touch.
    """

    def __call__(self, api: Api | None = None, *, server: str = "", ready: bool = True, **context: object) -> Page: ...


class Watched:
    """`check`: the page has had no error, and asked nobody but its server."""

    def __init__(self, page: Page, address: str) -> None:
        self._address = address
        self._requests: list[str] = []
        self._errors: list[str] = []
        page.on("request", lambda request: self._requests.append(request.url))
        page.on("pageerror", lambda error: self._errors.append(str(error)))
        page.on("console", self._hear)

    def check(self) -> None:
        assert self._errors == []
        assert {urlsplit(url)[:2] for url in self._requests} == {urlsplit(self._address)[:2]}

    def _hear(self, message: ConsoleMessage) -> None:
        """The browser itself tells of answers that are no success, which tests bring about."""
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self._errors.append(message.text)

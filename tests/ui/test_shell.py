"""The page around chat and engine: it comes up, says how the server is, and can be used by anybody."""

from __future__ import annotations

from support.asgi import Api
from support.page import OpenPage


def test_it_names_the_model_when_the_server_is_ready(open_page: OpenPage) -> None:
    page = open_page(Api())
    assert page.locator(".connection .model").inner_text() == "a-model"

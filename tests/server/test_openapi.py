"""The OpenAPI document tells the truth about routes, fields and errors; the page works without a network."""

from __future__ import annotations

import re

import msgspec
from support.asgi import CHAT, COMPLETIONS, HI, Api

from minisgl.server.app import PROBE_ROUTES, ROUTES
from minisgl.server.openapi import document
from minisgl.server.schema.chat import ChatRequest

NOT_DESCRIBED = {"/metrics", "/openapi.json", "/docs", "/", "/ui/{name}"}


def test_every_route_is_described_and_nothing_else() -> None:
    routes = {re.sub(":path", "", route.path): route.methods - {"HEAD"} for route in [*PROBE_ROUTES, *ROUTES]}
    described = {path: {method.upper() for method in methods} for path, methods in document()["paths"].items()}
    assert described == {path: methods for path, methods in routes.items() if path not in NOT_DESCRIBED}


def test_what_may_stand_behind_the_address_is_described() -> None:
    (limit,) = document()["paths"]["/inspect/requests"]["get"]["parameters"]
    assert (limit["name"], limit["in"]) == ("limit", "query")
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 512, "default": 64}
    assert limit["description"] in Api().get("/docs").text


def test_every_reference_leads_somewhere() -> None:
    text = msgspec.json.encode(document()).decode()
    for name in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert name in document()["components"]["schemas"]


def test_fields_have_the_ranges_of_openai_s_reference() -> None:
    fields = document()["components"]["schemas"][ChatRequest.__name__]["properties"]
    ranges = {name: (fields[name]["anyOf"][0]["minimum"], fields[name]["anyOf"][0]["maximum"]) for name in RANGES}
    assert ranges == RANGES


RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "n": (1, 128),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "top_logprobs": (0, 20),
    "seed": (-(2**63), 2**63 - 1),
}


def test_statuses_that_requests_get_are_described() -> None:
    api = Api()
    for path, body, status in [
        (CHAT, {}, 400),
        (CHAT, {"messages": HI, "model": "nope"}, 404),
        (COMPLETIONS, {"prompt": ""}, 400),
    ]:
        assert api.post(path, **body).status_code == status
        assert str(status) in document()["paths"][path]["post"]["responses"]


def test_the_document_and_the_page_are_served() -> None:
    api = Api()
    assert api.get("/openapi.json").json() == msgspec.json.decode(msgspec.json.encode(document()))
    page = api.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "<code>temperature</code>" in page.text
    assert not re.search(r"https?://|<script|//cdn", page.text)

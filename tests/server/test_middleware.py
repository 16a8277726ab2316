from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message
from support.server_app import ask, make_app, make_state

from minisgl.server import middleware
from minisgl.server.config import ServerConfig
from minisgl.server.errors import ApiError


async def count_body(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def show_id(request: Request) -> Response:
    return PlainTextResponse(request.state.request_id)


async def fail(request: Request) -> Response:
    raise LookupError("/home/somebody/secret.py")


async def refuse(request: Request) -> Response:
    raise ApiError(400, "max_tokens must be an integer", param="max_tokens", code="invalid_value")


async def fail_late(request: Request) -> Response:
    async def chunks() -> AsyncIterator[str]:
        yield "first"
        raise LookupError("late")

    return StreamingResponse(chunks())


ROUTES = [
    Route("/body", count_body, methods=["POST"]),
    Route("/id", show_id),
    Route("/fail", fail),
    Route("/fail_late", fail_late),
    Route("/refuse", refuse),
]


def app_with(**config: Any) -> Starlette:
    return make_app(make_state(ServerConfig(**config)), ROUTES)


def error_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["code"], str | None)
    return error


def test_a_refusal_of_a_route_is_an_openai_error() -> None:
    response = ask(app_with(), "GET", "/refuse")
    assert response.status_code == 400
    assert error_of(response) == {
        "message": "max_tokens must be an integer",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "invalid_value",
    }


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/nope", 404), ("GET", "/body", 405)])
def test_an_unknown_path_or_method_is_an_openai_error_that_names_it(method: str, path: str, status: int) -> None:
    response = ask(app_with(), method, path)
    assert response.status_code == status
    assert f"{method} {path}" in error_of(response)["message"]


def test_a_wrong_method_is_told_the_right_one() -> None:
    response = ask(app_with(), "GET", "/body")
    assert response.headers["allow"] == "POST"


def test_a_path_with_a_slash_too_many_is_unknown_rather_than_redirected() -> None:
    assert ask(app_with(), "POST", "/body/").status_code == 404


def test_an_unforeseen_exception_tells_the_client_nothing_and_the_log_all(caplog: pytest.LogCaptureFixture) -> None:
    response = ask(app_with(), "GET", "/fail")
    assert response.status_code == 500
    assert error_of(response)["type"] == "server_error"
    assert "secret" not in response.text
    assert "LookupError" not in response.text
    (record,) = [record for record in caplog.records if record.exc_info]
    assert response.headers["x-request-id"] in record.getMessage()
    assert "/home/somebody/secret.py" in str(record.exc_info)


def test_an_exception_after_the_first_byte_cuts_the_response_off(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a second response nor an end, which a client would take for success."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/fail_late", "headers": [], "query_string": b""}
    asyncio.run(app_with()(scope, asyncio.Event().wait, send))  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert (sent[1]["body"], sent[1]["more_body"]) == (b"first", True)
    assert any(record.exc_info for record in caplog.records)


def test_every_response_has_an_id_of_ours_which_routes_know_too() -> None:
    app = app_with()
    responses = [ask(app, "GET", "/id") for _ in range(3)]
    assert [response.headers["x-request-id"] for response in responses] == [response.text for response in responses]
    assert len({response.text for response in responses}) == 3
    assert ask(app, "GET", "/v1/nope").headers["x-request-id"].startswith("req-")


@pytest.mark.parametrize(
    ("sent", "echoed"),
    [("mine-1", "mine-1"), ("x" * 300, "x" * 128), ("a b\tc\x01\x7f", "abc"), ("\xff", None), (" ", None)],
)
def test_the_clients_own_id_comes_back_harmless_and_never_as_ours(sent: str, echoed: str | None) -> None:
    response = ask(app_with(), "GET", "/id", headers=[(b"X-Request-Id", sent.encode("latin-1"))])
    assert response.headers.get("x-client-request-id") == echoed
    assert response.headers["x-request-id"] == response.text != sent


def test_without_a_key_whatever_is_sent_is_ignored() -> None:
    assert ask(app_with(), "GET", "/id", headers={"Authorization": "Bearer x"}).status_code == 200


@pytest.mark.parametrize("sent", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic k-é", "Bearer k-", "k-é"])
def test_a_missing_or_wrong_key_is_401(sent: str | None) -> None:
    headers = {} if sent is None else {"Authorization": sent.encode()}
    response = ask(app_with(api_key="k-é"), "GET", "/id", headers=headers)
    assert response.status_code == 401
    assert error_of(response)["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("sent", ["Bearer k-é", "bearer k-é", "Bearer  k-é "])
def test_the_right_key_opens(sent: str) -> None:
    assert ask(app_with(api_key="k-é"), "GET", "/id", headers={"Authorization": sent.encode()}).status_code == 200


def test_probes_need_no_key_but_unknown_paths_do() -> None:
    app = app_with(api_key="k")
    assert ask(app, "GET", "/health").status_code == 503
    assert ask(app, "GET", "/metrics").status_code == 200
    assert ask(app, "GET", "/v1/nope").status_code == 401


async def in_chunks(num_chunks: int, size: int) -> AsyncIterator[bytes]:
    for _ in range(num_chunks):
        yield b"x" * size


def test_a_body_up_to_the_limit_is_taken_announced_or_in_chunks() -> None:
    app = app_with(max_body_bytes=100)
    assert ask(app, "POST", "/body", content=b"x" * 100).text == "100"
    assert ask(app, "POST", "/body", content=in_chunks(10, 10)).text == "100"


def test_a_larger_body_is_413_announced_or_in_chunks() -> None:
    app = app_with(max_body_bytes=100)
    for body in (b"x" * 101, in_chunks(11, 10), in_chunks(1, 101)):
        response = ask(app, "POST", "/body", content=body)
        assert response.status_code == 413
        assert "100 bytes" in error_of(response)["message"]
        assert response.headers["connection"] == "close"


def test_the_bodies_of_all_open_requests_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MAX_BODIES", 2)
    num_inside, go_on = 0, asyncio.Event()

    async def hold(request: Request) -> Response:
        nonlocal num_inside
        await request.body()
        num_inside += 1
        await go_on.wait()
        return PlainTextResponse("done")

    async def main() -> None:
        app = make_app(make_state(ServerConfig(max_body_bytes=100)), [Route("/hold", hold, methods=["POST"])])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
            held = [asyncio.ensure_future(client.post("/hold", content=b"x" * 100)) for _ in range(2)]
            while num_inside < 2:
                await asyncio.sleep(0)
            refused = await client.post("/hold", content=b"x")
            assert refused.status_code == 429
            assert error_of(refused)["code"] == "rate_limit_exceeded"
            assert refused.headers["retry-after"] == "1"
            assert refused.headers["connection"] == "close"
            go_on.set()
            assert [response.status_code for response in await asyncio.gather(*held)] == [200, 200]
            assert (await client.post("/hold", content=b"x" * 100)).text == "done"

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_body_that_does_not_come_is_waited_for_no_longer_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_TIMEOUT_S", 0.05)

    async def stalls() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    response = ask(app_with(), "POST", "/body", content=stalls())
    assert response.status_code == 400
    assert error_of(response)["code"] == "request_too_slow"
    assert response.headers["connection"] == "close"


def test_a_route_may_wait_for_its_client_to_leave_for_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "BODY_TIMEOUT_S", 0.05)

    async def wait_for_leaving(request: Request) -> Response:
        await request.body()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await request.receive()
        return PlainTextResponse("stayed")

    app = make_app(routes=[Route("/wait", wait_for_leaving, methods=["POST"])])
    assert ask(app, "POST", "/wait", content=b"x").text == "stayed"


PREFLIGHT = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}


def test_pages_of_other_origins_are_shut_out_by_default() -> None:
    response = ask(app_with(), "GET", "/id", headers={"Origin": "https://a.example"})
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert ask(app_with(), "OPTIONS", "/id", headers=PREFLIGHT).status_code == 405


def test_an_allowed_origin_may_ask_first_without_a_key_and_read_refusals_and_ids() -> None:
    app = app_with(cors_origins=("https://a.example",), api_key="k")
    assert ask(app, "OPTIONS", "/id", headers=PREFLIGHT).status_code == 200
    refused = ask(app, "GET", "/id", headers={"Origin": "https://a.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://a.example"
    assert "x-request-id" in refused.headers["access-control-expose-headers"]
    other = ask(app, "GET", "/id", headers={"Origin": "https://b.example"})
    assert "access-control-allow-origin" not in other.headers


def test_nothing_is_left_open_after_requests_of_every_kind() -> None:
    state = make_state()
    app = make_app(state, ROUTES)
    for path in ("/id", "/fail", "/refuse", "/v1/nope"):
        ask(app, "GET", path)
    assert len(state.book) == 0
    assert state.metrics.responses == {200: 1, 500: 1, 400: 1, 404: 1}

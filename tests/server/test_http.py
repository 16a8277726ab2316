"""What becomes of open requests when the server's time is up."""

from __future__ import annotations

import asyncio
import json
import logging
import threading

import pytest
from support.asgi import Api, says

from minisgl.server.endpoints import tokens
from minisgl.server.http import HttpServer
from minisgl.server.listener import listen


def post(path: str, body: object) -> bytes:
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def test_a_request_that_waits_for_a_thread_is_told_that_the_server_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, at_work = threading.Event(), threading.Event()

    def wait(*args: object) -> bytes:
        at_work.set()
        assert go_on.wait(60)
        return b"{}"

    monkeypatch.setattr(tokens, "_tokenized", wait)

    async def main() -> bytes:
        with listen("127.0.0.1", 0) as listener:
            server = HttpServer(Api(says("Hello")).app, listener)
            server.start()
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(post("/tokenize", {"prompt": "x"}))
            await asyncio.to_thread(at_work.wait, 60)
            assert not await server.stop(0.05)
            await server.cut()
            received = await reader.read()
            writer.close()
            go_on.set()
            return received

    with caplog.at_level(logging.WARNING):
        received = asyncio.run(asyncio.wait_for(main(), 60))
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"server_shutting_down" in received
    assert b"x-request-id" in received
    assert caplog.records == []


def test_a_connection_on_which_nothing_or_half_a_request_came_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[bytes]:
        with listen("127.0.0.1", 0) as listener:
            server = HttpServer(Api(says("Hello")).app, listener)
            server.start()
            received = []
            readers = [await asyncio.open_connection(*listener.getsockname()) for _ in range(3)]
            for (_, writer), sent in zip(
                readers, (b"", b"GET /hea", post("/tokenize", {"prompt": "x"})[:-1]), strict=True
            ):
                writer.write(sent)
            await asyncio.sleep(0.05)
            await server.cut()
            for reader, writer in readers:
                try:
                    received.append(await reader.read())
                except ConnectionError:
                    received.append(b"")
                writer.close()
            return received

    with caplog.at_level(logging.WARNING):
        *silent, half = asyncio.run(asyncio.wait_for(main(), 60))
    assert silent == [b"", b""]
    assert b"server_shutting_down" in half
    assert caplog.records == []

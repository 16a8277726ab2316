"""What comes over a connection that is no well-behaved HTTP client's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from support.asgi import COMPLETIONS, Api, ids_of, says
from support.scripted_link import Item, Script

from minisgl.message import UserMsg
from minisgl.server import protocol
from minisgl.server.budget import Budget
from minisgl.server.http import HttpServer
from minisgl.server.listener import listen

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Connection]]
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n"
END = b"Connection: close\r\n\r\n"
HELLO = says("Hello")


def slowly(request: UserMsg) -> Iterable[Item]:
    """x for ever, one each 10 ms."""
    return itertools.chain.from_iterable(itertools.repeat((ids_of("x")[0], 0.05)))


def at_once(request: UserMsg) -> Iterable[Item]:
    """As much as it wants, ten tokens a step."""
    return itertools.repeat(tuple(ids_of("x")[:1] * 10))


def with_server(
    test: Callable[[Connect], Awaitable[None]],
    script: Script = HELLO,
    sent: list[bytes] | None = None,
    answers: Budget | None = None,
) -> None:
    """Run it with a function that connects to a server, which must have no connection left afterwards.

    sent: gets the bodies that pass through ASGI's `send`. answers: counts what is not read.
    """
    answers = answers or Budget(2**26, "unread answers", 60.0)
    app = Api(script, answers=answers).app

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_noted(message: Message) -> None:
            if sent is not None:
                sent.append(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_noted)

    async def main() -> None:
        with listen("127.0.0.1", 0) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**14)
            server = HttpServer(watched, listener, answers)
            server.start()
            try:
                await test(lambda: asyncio.open_connection(sock=_connect_narrowly(listener), limit=2**14))
                while server.server_state.connections:
                    await asyncio.sleep(0.01)
            finally:
                await server.stop(5)

    asyncio.run(asyncio.wait_for(main(), 60))


def _connect_narrowly(listener: socket.socket) -> socket.socket:
    """The kernel would keep megabytes for a reader that does not read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
    connection.connect(listener.getsockname())
    return connection


async def answer_to(connect: Connect, *pieces: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    reader, writer = await connect()
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0)
    received = await reader.read()
    writer.close()
    return received


def completion(*headers: bytes, **fields: Any) -> bytes:
    body = json.dumps({"prompt": "Hi", **fields}).encode()
    lines = [b"POST " + COMPLETIONS.encode() + b" HTTP/1.1", b"Host: x", b"Content-Type: application/json", *headers]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS greeting\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_an_error_in_openai_form(sent: bytes) -> None:
    async def test(connect: Connect) -> None:
        head, _, body = (await answer_to(connect, sent)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"content-type: application/json" in head
        assert json.loads(body)["error"]["code"] == "invalid_http"

    with_server(test)


@pytest.mark.parametrize("header", [b"X-One: " + b"a" * 1000 + b"\r\n", b"X: y\r\n", b"a"])
def test_a_head_without_end_is_refused_when_it_is_too_long(header: bytes) -> None:
    async def test(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(HEALTH)
        while not reader.at_eof() and not reader._buffer:  # type: ignore[attr-defined]
            writer.write(header * (10_000 // len(header)))
            await asyncio.sleep(0.001)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()

    with_server(test)


def test_a_head_that_is_too_long_is_refused_though_it_comes_in_one_piece() -> None:
    async def test(connect: Connect) -> None:
        long_path = HEALTH.replace(b"health", b"a" * 70_000)
        for head in (HEALTH + b"X-One: " + b"a" * 70_000 + b"\r\n", HEALTH + b"X: y\r\n" * 20_000, long_path):
            received = await answer_to(connect, head + END)
            assert received.startswith(b"HTTP/1.1 400 ")
            assert b"65536" in received

    with_server(test)


def test_a_body_may_be_longer_than_a_head_and_so_may_many_requests_in_a_row() -> None:
    async def test(connect: Connect) -> None:
        long = completion(user="x" * 3 * protocol.MAX_HEAD_BYTES)
        received = await answer_to(connect, *[long] * 3, *[HEALTH + b"\r\n"] * 2000, HEALTH + END)
        assert received.count(b"HTTP/1.1 200 OK") == 2004

    with_server(test)


def in_chunks(path: bytes, rest: bytes) -> bytes:
    """A request whose body is {}. rest: of the last chunk, after its length."""
    head = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    return head + b"\r\n2\r\n{}\r\n0" + rest


@pytest.mark.parametrize("start", [b"\r\n", b"\r\nX: ", b";"], ids=["many trailers", "a long one", "an extension"])
@pytest.mark.parametrize("path", [b"/v1/completions", b"/nowhere"])
def test_a_chunked_body_without_end_is_refused_when_nothing_of_it_is_content(path: bytes, start: bytes) -> None:
    async def test(connect: Connect) -> None:
        _, writer = await connect()
        writer.write(in_chunks(path, start))
        unit = b"a" * 2**14 if start != b"\r\n" else (b"X-A: " + b"a" * 60 + b"\r\n") * 200
        num_sent = 0
        with contextlib.suppress(ConnectionError):
            while num_sent < 10 * protocol.MAX_HEAD_BYTES:
                writer.write(unit)
                num_sent += len(unit)
                await writer.drain()
                await asyncio.sleep(0.001)
        assert num_sent < 10 * protocol.MAX_HEAD_BYTES, "all of it was taken"
        writer.close()

    with_server(test)


def test_a_chunked_body_may_be_long_in_small_chunks_with_trailers_which_are_no_headers() -> None:
    key = b"\r\nX-Request-Id: from-a-trailer\r\n\r\n"
    body = completion().partition(b"\r\n\r\n")[2]
    chunks = b"".join(b"1;n=v\r\n%c\r\n" % byte for byte in body + b" " * 3 * protocol.MAX_HEAD_BYTES)

    async def test(connect: Connect) -> None:
        head = in_chunks(COMPLETIONS.encode(), b"").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        received = await answer_to(connect, head + chunks + b"0" + key + HEALTH + END)
        assert received.count(b"HTTP/1.1 200 OK") == 2
        assert b"from-a-trailer" not in received

    with_server(test)


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"\r\n", HEALTH])
@pytest.mark.parametrize("before", [b"", HEALTH + b"\r\n"])
def test_a_connection_on_which_no_request_comes_is_closed(
    sent: bytes, before: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.1)

    async def test(connect: Connect) -> None:
        if before and not sent:
            return  # an idle one is kept for a while, which is uvicorn's business
        reader, writer = await connect()
        writer.write(before)
        if before:
            await reader.readuntil(b'{"status":"ok"}')
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()

    with_server(test)


def test_a_body_that_nobody_reads_keeps_no_connection_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.1)

    async def test(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        await reader.readuntil(b'"code":"not_found"}}')
        writer.write(b"x")
        assert await reader.read() == b""
        writer.close()

    with_server(test)


def test_a_stream_may_take_longer_than_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.0)

    async def test(connect: Connect) -> None:
        assert b"data: [DONE]" in await answer_to(connect, completion(b"Connection: close", stream=True))

    with_server(test)


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [
        (b"1.1", [], b"400"),
        (b"1.1", [b"a", b"b"], b"400"),
        (b"1.1", [b"a", b"a"], b"400"),
        (b"1.1", [b"a"], b"200"),
        (b"1.1", [b""], b"200"),
        (b"1.1", [b"a.example:8000"], b"200"),
        (b"1.1", [b"[::1]:8000"], b"200"),
        (b"1.0", [], b"200"),
        (b"1.0", [b"a"], b"200"),
        (b"1.0", [b"a", b"b"], b"400"),
        (b"1.1", [b"a b"], b"400"),
        (b"1.1", [b"user@a"], b"400"),
        (b"1.1", [b"a/b"], b"400"),
        (b"1.1", [b"a:x"], b"400"),
        (b"1.1", [b"[::1"], b"400"),
        (b"1.1", [b"\xff"], b"400"),
        (b"1.1", [b"a,b?c"], b"400"),
    ],
)
def test_a_request_has_one_host_that_can_be_one(version: bytes, hosts: list[bytes], status: bytes) -> None:
    head = b"GET /health HTTP/%b\r\n" % version + b"".join(b"Host: %b\r\n" % host for host in hosts)

    async def test(connect: Connect) -> None:
        received = await answer_to(connect, head + END)
        assert received.startswith(b"HTTP/1.1 " + status), received

    with_server(test)


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\nContent-Length: 2\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
    ],
)
def test_the_length_of_a_body_is_said_once(headers: bytes) -> None:
    async def test(connect: Connect) -> None:
        head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers
        assert (await answer_to(connect, head + END + b"{}")).startswith(b"HTTP/1.1 400")

    with_server(test)


LOUD = completion(b"Connection: close", stream=True, max_tokens=400, n=8, logprobs=5)  # hundreds of kilobytes


def test_a_client_that_stops_reading_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "WRITE_TIMEOUT_S", 0.1)

    async def test(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(LOUD)
        received = await reader.readuntil(b"data: ")
        await asyncio.sleep(1)
        with contextlib.suppress(ConnectionError):
            received += await reader.read()
        assert b"[DONE]" not in received
        writer.close()

    with_server(test, at_once)


def test_what_a_client_does_not_read_is_counted_until_it_is_read_or_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Budget(2**26, "unread answers", 60.0)

    async def read_late(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(LOUD)
        await reader.readuntil(b"data: ")
        while answers.held < 2**16:
            await asyncio.sleep(0.01)
        assert b"data: [DONE]" in await reader.read()
        assert answers.held == 0
        writer.close()

    async def never_read(connect: Connect) -> None:
        monkeypatch.setattr(protocol, "WRITE_TIMEOUT_S", 0.1)
        reader, writer = await connect()
        writer.write(LOUD)
        await reader.readuntil(b"data: ")
        while answers.held < 2**16:
            await asyncio.sleep(0.01)
        while answers.held:
            await asyncio.sleep(0.01)
        writer.close()

    with_server(read_late, at_once, answers=answers)
    with_server(never_read, at_once, answers=answers)
    assert answers.held == 0


def test_a_client_that_reads_slowly_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "WRITE_TIMEOUT_S", 0.5)

    async def test(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(LOUD)
        received = b""
        while piece := await reader.read(2**14):
            received += piece
            await asyncio.sleep(0.05)
        assert b"data: [DONE]" in received
        assert len(received) > 100_000, "it never had to wait"
        writer.close()

    with_server(test, at_once)


@pytest.mark.parametrize("name", [b"Upgrade", b"UPGRADE"])
def test_an_offer_to_upgrade_costs_no_body(name: bytes) -> None:
    """As Java's HTTP client makes it."""

    async def test(connect: Connect) -> None:
        offer = [b"Connection: Upgrade, HTTP2-Settings", name + b": h2c", b"HTTP2-Settings: AAMAAABkAAQAoAAA"]
        received = await answer_to(connect, completion(*offer) + HEALTH + END)
        assert received.count(b"HTTP/1.1 200 OK") == 2
        assert b'"text":"Hello"' in received

    with_server(test)


@pytest.mark.parametrize(("content_type", "status"), [(b"text/plain", b"400"), (b"application/json", b"200")])
def test_a_body_that_waits_for_a_100_is_asked_for_or_the_connection_closed(content_type: bytes, status: bytes) -> None:
    async def test(connect: Connect) -> None:
        head, _, body = completion(b"Expect: 100-continue").partition(b"\r\n\r\n")
        reader, writer = await connect()
        writer.write(head.replace(b"application/json", content_type) + b"\r\n\r\n")
        received = await reader.readuntil(b"\r\n\r\n")
        if received.startswith(b"HTTP/1.1 100 "):
            writer.write(body)
            received = await reader.readuntil(b"\r\n\r\n")
        assert received.startswith(b"HTTP/1.1 " + status)
        await reader.read()
        writer.close()

    with_server(test)


def test_nonsense_after_a_request_is_not_mixed_into_its_answer() -> None:
    async def test(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(completion(stream=True, max_tokens=400))
        received = await reader.readuntil(b"data: ")
        writer.write(b"\x00\r\n\r\n")
        received += await reader.read()
        assert received.count(b"HTTP/1.1 ") == 1
        writer.close()

    with_server(test, slowly)


def test_a_stream_s_tokens_are_the_same_chunks_past_all_layers_and_the_connection_goes_on() -> None:
    script = [*itertools.chain.from_iterable((id_, 0.01) for id_ in ids_of("Hello, world"))]
    sent: list[bytes] = []

    async def test(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(completion(stream=True) + HEALTH + END)  # the second one waits in line
        first, second = (await reader.read()).split(b"0\r\n\r\n")
        head, _, body = first.partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        events = b"".join(_chunks(body)).split(b"\n\n")
        texts = [json.loads(event[6:])["choices"][0]["text"] for event in events[:-2]]
        assert ("".join(texts), events[-2:]) == ("Hello, world", [b"data: [DONE]", b""])
        assert second.startswith(b"HTTP/1.1 200 OK")
        assert b'"text":"H"' in b"".join(sent)
        assert b'"text":"w"' not in b"".join(sent), "tokens pass through `send`"
        writer.close()

    with_server(test, lambda request: script, sent)


@pytest.mark.parametrize(("version", "stream"), [(b"1.0", True), (b"1.0", False), (b"0.9", True)])
def test_an_answer_to_a_client_older_than_chunks_has_a_length_or_ends_with_the_connection(
    version: bytes, stream: bool
) -> None:
    async def test(connect: Connect) -> None:
        request = completion(b"Connection: keep-alive", stream=stream).replace(b"HTTP/1.1", b"HTTP/" + version)
        head, _, body = (await answer_to(connect, request)).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert (b"content-length" in head) != stream
        assert body.startswith(b"data: " if stream else b"{")
        assert body.endswith(b"data: [DONE]\n\n" if stream else b"}")

    with_server(test)


def _chunks(body: bytes) -> Iterable[bytes]:
    """Of a body in HTTP's chunked coding, all but the last."""
    while body:
        size, _, body = body.partition(b"\r\n")
        yield body[: int(size, 16)]
        assert body[int(size, 16) :][:2] == b"\r\n"
        body = body[int(size, 16) + 2 :]


def test_a_client_that_leaves_between_two_tokens_ends_its_request() -> None:
    async def test(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(completion(stream=True, max_tokens=400))
        for _ in range(5):
            await reader.readuntil(b"data: ")
        writer.close()  # the server's side must close too, or `with_server` waits for ever

    with_server(test, slowly)


@pytest.fixture
def cycles() -> Iterator[Callable[[], set[str]]]:
    """Finds types of the server's objects that only a search for cycles would have freed since the test began."""
    gc.collect()
    gc.freeze()
    gc.disable()

    def find() -> set[str]:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        types = {type(thing) for thing in gc.garbage}
        return {kind.__name__ for kind in types if kind.__module__.startswith(("minisgl", "uvicorn", "starlette"))}

    yield find
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    gc.enable()


@pytest.mark.parametrize("how", ["whole", "streamed", "refused", "abandoned"])
def test_a_request_that_is_over_leaves_no_cycle(how: str, cycles: Callable[[], set[str]]) -> None:
    """The server's process hardly ever looks for them."""
    found: list[set[str]] = []
    request = completion(stream=how in ("streamed", "abandoned"), max_tokens=-1 if how == "refused" else 5)

    async def test(connect: Connect) -> None:
        for _ in range(3):
            reader, writer = await connect()
            for _ in range(2):
                writer.write(request)
                await reader.readuntil(b"\r\n\r\n")
                if how != "abandoned":
                    await asyncio.sleep(0.05)
            writer.close()
            await asyncio.sleep(0.05)
        found.append(cycles())

    with_server(test, slowly if how == "abandoned" else HELLO)
    assert found == [set()]

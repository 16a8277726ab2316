"""An HTTP/1.1 client for a thousand streams at once: what arrives goes to a function, and no task wakes for it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from typing import cast

import httptools

from minisgl.cli.address import Address

MAX_IDLE_S = 2.0  # servers close what idles longer; one that closes while we write would look like its fault


class Connections:
    """Keeps connections alive between requests. All methods belong to the event loop."""

    def __init__(self, address: Address, headers: Mapping[str, str]) -> None:
        self._address = address
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._ssl = ssl.create_default_context() if address.is_secure else None
        self._idle: list[_Connection] = []

    async def request(self, method: str, path: str, body: bytes, on_body: Callable[[bytes], None]) -> int:
        """Send a request; its answer goes to `on_body` in parts. The status, when all has come.

        OSError when it cannot be sent, or the answer breaks off. Cancelling it closes the connection.
        """
        connection = self._take_idle() or await self._connect()
        head = (
            f"{method} {self._address.path}{path} HTTP/1.1\r\nHost: {self._address.host}:{self._address.port}\r\n"
            f"{self._headers}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            status = await connection.exchange(head.encode() + body, on_body)
        except BaseException:
            connection.close()
            raise
        if connection.is_open:
            self._idle.append(connection)
        return status

    async def __aenter__(self) -> Connections:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close what idles, and let the event loop close what was closed."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and time.monotonic() - connection.idle_since < MAX_IDLE_S:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        address = self._address
        try:
            _, connection = await loop.create_connection(_Connection, address.host, address.port, ssl=self._ssl)
        except OSError as error:
            raise address.error(error) from error
        return connection


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self.is_open = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._on_body: Callable[[bytes], None]
        self._answered: asyncio.Future[int] | None = None

    async def exchange(self, request: bytes, on_body: Callable[[bytes], None]) -> int:
        self._parser = httptools.HttpResponseParser(self)
        self._on_body = on_body
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answered

    def close(self) -> None:
        self.is_open = False
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self.is_open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._fail(ConnectionError("the connection was closed in the middle of an answer"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the answer is no HTTP: {error}"))
            self.close()

    def on_body(self, body: bytes) -> None:
        self._on_body(body)

    def on_message_complete(self) -> None:
        self.is_open = self._parser.should_keep_alive()
        self.idle_since = time.monotonic()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(self._parser.get_status_code())

    def _fail(self, error: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)

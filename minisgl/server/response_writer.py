"""One response on its way to the client, whole or as a stream that begins with its first event."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from minisgl.server.errors import ApiError
from minisgl.server.stream.events import PING, error_event

_JSON = [(b"content-type", b"application/json")]
_EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the events
]
# Looks that find nothing written before a comment is due. One more fits the interval, for the look that a byte has just
# missed.
LOOKS = 4
BODY_EXTENSION = "minisgl.body"  # of an ASGI scope: a callable that gives a `Body`, if the server has one


class Body(Protocol):
    """A way to the client beside `send`, for more of a body that has begun: nothing is awaited, no layer is passed."""

    def is_clear(self) -> bool:
        """Whether the response has begun and its client keeps up."""
        ...

    def write(self, piece: bytes) -> None:
        """To be called when it is clear. piece: not empty."""
        ...


class _NoBody:
    """For a server that offers no `Body`: everything goes through `send`."""

    def is_clear(self) -> bool:
        return False

    def write(self, piece: bytes) -> None:
        raise AssertionError("the way is not clear")


class ResponseWriter:
    """has_begun: status and headers are out, so an error can only be an event. headers: to be sent besides. is_clear:
    tells whether more of a stream can be written at once.

    Between `keep_alive` and `stop_pinging` a comment line is written whenever nothing else was for some seconds. That
    costs a token no look at the clock: a timer looks a few times an interval whether anything was written.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self.has_begun = False
        self.headers: list[tuple[bytes, bytes]] = []
        self._has_written = False  # since the last look
        self._num_silent = 0  # looks, one after the other
        self._timer: asyncio.TimerHandle | None = None
        self._ping: asyncio.Task[None] | None = None  # is being written
        self._send = send
        self._state: dict[str, Any] = scope.setdefault("state", {})
        body: Body = scope.get("extensions", {}).get(BODY_EXTENSION, _NoBody)()
        self.is_clear = body.is_clear  # asked for every token: one call less
        self._write_more = body.write

    def write_at_once(self, events: bytes) -> None:
        """What `write` does, when it is clear."""
        if events:
            self._write_more(events)
            self._has_written = True

    async def write(self, events: bytes) -> None:
        """More of a stream. Waits while the client is slow."""
        if not events:
            return
        if self._ping is not None:
            await asyncio.shield(self._ping)
        self._has_written = True
        await self._write(events)

    async def _write(self, events: bytes) -> None:
        if not self.has_begun:
            self.has_begun = True
            headers = [*_EVENTS, *self.headers]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def end(self, events: bytes) -> None:
        """The last of a stream."""
        self.stop_pinging()
        await self.write(events)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def whole(self, body: bytes, holds_room: bool = False) -> None:
        """An answer in one piece. holds_room: it is counted among the unread answers, as a large one must be."""
        self.has_begun = True
        self._state["holds_room"] = holds_room
        headers = [*_JSON, *self.headers, (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def keep_alive(self, interval: float) -> None:
        """From now on there is no silence of more than `interval` seconds."""
        self._look_in(interval / (LOOKS + 1))

    def stop_pinging(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look, seconds)

    def _look(self, seconds: float) -> None:
        """Write a comment when it is due. One that the client has not taken yet is as good as a new one."""
        self._num_silent = 0 if self._has_written else self._num_silent + 1
        self._has_written = False
        if self._num_silent >= LOOKS and self._ping is None:
            self._num_silent = 0
            self._ping = asyncio.ensure_future(self._write(PING))
            self._ping.add_done_callback(self._end_ping)
        self._look_in(seconds)

    def _end_ping(self, ping: asyncio.Task[None]) -> None:
        self._ping = None
        if not ping.cancelled():
            ping.exception()  # of a client that has left: who writes next is told

    async def fail(self, error: ApiError) -> None:
        """The end of a stream that broke. Before it has begun the error is raised, to be an answer of its own."""
        self.stop_pinging()
        if self._ping is not None:
            await asyncio.shield(self._ping)
        if not self.has_begun:
            raise error
        await self.end(error_event(error))


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has left. The request's body has been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass

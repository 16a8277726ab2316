"""uvicorn on a socket of ours, with nobody else's signal handlers, log or headers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from minisgl.server.budget import Budget
from minisgl.server.protocol import HttpProtocol

CUT_S = 1.0
KEEP_ALIVE_S = 75  # longer than clients and proxies keep an idle connection, so that the closing side is theirs


class HttpServer(uvicorn.Server):
    """Serves from `start` until `stop`, after which it still finishes the requests that it has.

    answers: counts what clients have not read yet.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket, answers: Budget | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(HttpProtocol, answers=answers),  # type: ignore[arg-type]
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
        )
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """uvicorn would take SIGINT and SIGTERM for itself; the lifecycle has them."""
        yield

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self.serve([self._listener]), name="http")
        return self._task

    async def stop(self, timeout: float) -> bool:
        """Take no more connections, wait for open requests to end; whether they did within `timeout` seconds."""
        assert self._task is not None, "stopped before it was started"
        self.should_exit = True
        done, _ = await asyncio.wait({self._task}, timeout=timeout)
        return bool(done)

    async def cut(self) -> None:
        """Whoever has no answer yet gets its last one, and all connections are dropped."""
        assert self._task is not None, "cut before it was started"
        self.should_exit = self.force_exit = True
        self._drop(lambda connection: connection.cycle is None or connection.cycle.response_started)
        if tasks := set(self.server_state.tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CUT_S)
        self._drop(lambda connection: True)
        await asyncio.wait({self._task}, timeout=CUT_S)

    def _drop(self, is_over: Callable[[HttpProtocol], bool]) -> None:
        """The connections of which it says so; whoever still writes to one finds it closed."""
        for connection in list(self.server_state.connections):
            assert isinstance(connection, HttpProtocol)
            if is_over(connection):
                connection.transport.abort()

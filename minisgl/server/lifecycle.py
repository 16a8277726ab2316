"""From a bound port to an exit code: load, serve, drain; or end because the engine died.

listening, 503  --loaded-->  serving  --SIGTERM, SIGINT-->  draining  --> exit 0
       |                        |                              |
       +------- engine dies: 503, open streams get an error, exit 1 ----+
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette

from minisgl.llm import EngineDied
from minisgl.server.http import HttpServer
from minisgl.server.listener import address_of
from minisgl.server.reporter import Reporter
from minisgl.server.state import ServerState

if TYPE_CHECKING:
    from minisgl.message import EngineInfo
    from minisgl.server.engine_client import EngineClient

STOPPED, ENGINE_DIED = 0, 1  # exit codes; main gives 2 to a ValueError while loading
LINGER_S = 1.0  # a dead engine's server answers so long yet, that streams and probes are told why
GRACE_S = 2.0  # for streams to write the error that ended them


class EngineHandle(Protocol):
    """An engine process, from its start on. Both ends of it may be called twice, and from any thread."""

    async def ready(self) -> tuple[EngineClient, EngineInfo]:
        """When it has loaded. ValueError for what cannot work; EngineDied when it broke."""
        ...

    def shutdown(self) -> None:
        """Open requests get an error, and the process ends; returns when it has."""
        ...

    def kill(self) -> None:
        """The process ends at once."""
        ...


Tell = Callable[[str], None]
StartEngine = Callable[[Tell, Tell], EngineHandle]  # whom to tell what is being loaded, and why it died; in any thread


class Lifecycle:
    """Owns the state on `app.state.server`, and replaces it as things change."""

    def __init__(self, app: Starlette, listener: socket.socket, start_engine: StartEngine, reporter: Reporter) -> None:
        self._app = app
        self._http = HttpServer(app, listener, app.state.server.answers)
        self._address = address_of(listener)
        self._start_engine = start_engine
        self._reporter = reporter
        self._death: str | None = None

    @property
    def _state(self) -> ServerState:
        state: ServerState = self._app.state.server
        return state

    async def run(self) -> int:
        """The exit code. Whatever loading raises is raised here. To be called in the main thread."""
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        self._engine = self._start_engine(
            partial(_call_in, loop, self._reporter.progress), partial(_call_in, loop, self._on_death)
        )
        self._reporter.loading(self._address, self._state.model_name)
        serving = self._http.start()
        loading = asyncio.create_task(self._load(), name="loading")
        try:
            await _first_of(self._end, serving, loading)
            await _first_of(self._end, serving)
            await self._close(is_loaded=loading.done())
            return STOPPED if self._state.error is None else ENGINE_DIED
        finally:
            loading.cancel()
            self._reporter.close()
            self._engine.kill()
            await self._http.cut()

    async def _load(self) -> None:
        started = time.perf_counter()
        try:
            engine, info = await self._engine.ready()
        except EngineDied as error:
            self._end_with_engine(str(error))
            return
        self._state.gate.max_running = info.max_running_req
        self._change(engine=engine, info=info)
        if self._death is not None:  # while the tokenizer was loaded here
            self._end_with_engine(self._death)
        else:
            self._reporter.ready(self._address, self._state.model_name, info, time.perf_counter() - started)
            self._reporter.small_pool(info)
            self._reporter.sampling(self._state.advised_sampling)

    async def _close(self, is_loaded: bool) -> None:
        """Let open requests end as well as they can. Before the model is loaded there are none."""
        if self._state.error is not None:
            await asyncio.sleep(LINGER_S)
            await self._http.stop(GRACE_S)
        elif is_loaded:
            await self._drain()

    async def _drain(self) -> None:
        gate, timeout = self._state.gate, self._state.config.drain_timeout
        gate.drain()
        self._reporter.draining(gate.num_open, timeout)
        in_time = await self._http.stop(timeout)
        await asyncio.to_thread(self._engine.shutdown)
        if not in_time:
            await self._http.stop(GRACE_S)
        self._reporter.drained(in_time)

    def _on_signal(self, number: int) -> None:
        """The first one ends the server in good order, the second one at once."""
        if self._end.done():
            self._engine.kill()
            os._exit(128 + number)
        self._end.set_result(None)

    def _on_death(self, reason: str) -> None:
        """Until the model is loaded, `_load` has the last word: a wrong option is no death."""
        self._death = reason
        if self._state.engine is not None:
            self._end_with_engine(reason)

    def _end_with_engine(self, reason: str) -> None:
        self._change(error=reason)
        self._reporter.died(reason)
        if not self._end.done():
            self._end.set_result(None)

    def _change(self, **fields: Any) -> None:
        self._app.state.server = dataclasses.replace(self._state, **fields)


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    """Until one of them is done; what it raised is raised."""
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    for future in done:
        future.result()


def _call_in(loop: asyncio.AbstractEventLoop, tell: Tell, text: str) -> None:
    """From another thread; nothing if the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(tell, text)

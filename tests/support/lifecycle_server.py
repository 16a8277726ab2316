"""The whole server on a port, in a process of its own, but the engine answers by a script: one "x" each 10 ms.

SIGUSR1 makes the engine die, as if it had been killed; SIGUSR2 makes it come to the end of every answer. A text that
/tokenize gets is tokenized for ever.
"""

from __future__ import annotations

import asyncio
import multiprocessing.forkserver
import os
import signal
import sys
import threading
import unittest.mock
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from support.engine_info import engine_info
from support.live_server import LiveServer, free_port
from support.scripted_link import Item, ScriptedLink, make_engine_client
from support.tiny_model import EOS, VOCAB

from minisgl.core import Limits
from minisgl.llm import LLMConfig
from minisgl.message import UserMsg
from minisgl.server.config import ServerConfig
from minisgl.server.endpoints import tokens
from minisgl.server.lifecycle import Tell
from minisgl.server.reporter import Reporter
from minisgl.server.serve import serve
from minisgl.utils.logging import install_handler

FORKS = multiprocessing.get_context("forkserver")  # imports everything once, for all servers
FORKS.set_forkserver_preload(["support.lifecycle_server"])
ROOM = Limits(VOCAB, 200_000, 10**6)


class Server(LiveServer):
    """The same questions may be asked of it; its process is of another kind."""

    process: BaseProcess  # type: ignore[assignment]

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def exit_code(self) -> int | None:
        """When it has ended, within half a minute."""
        self.process.join(30)
        return self.process.exitcode


@contextmanager
def lifecycle_server(
    log: Path, *, port: int = 0, load_s: float = 0.0, failure: Exception | None = None, drain_timeout: float = 30.0
) -> Iterator[Server]:
    """A server that has begun to start. load_s: seconds that loading takes; then it fails, if `failure` is given."""
    _ensure_forkserver()
    port = port or free_port()
    process = FORKS.Process(target=run, args=(log, port, load_s, failure, drain_timeout), daemon=True)
    process.start()
    try:
        yield Server(port, process, log)  # type: ignore[arg-type]
    finally:
        process.kill()
        process.join()


def _ensure_forkserver() -> None:
    """What it preloads is found by PYTHONPATH only, in Python 3.11."""
    with unittest.mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[1])):
        multiprocessing.forkserver.ensure_running()


def run(log: Path, port: int, load_s: float, failure: Exception | None, drain_timeout: float) -> None:
    """Serve, with stdout and stderr in `log`; for a process of its own."""
    with log.open("wb") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    install_handler()
    tokens._tokenized = tokenize_for_ever
    server = ServerConfig(port=port, drain_timeout=drain_timeout)
    config = LLMConfig.from_kwargs(model="scripted")
    sys.exit(serve(config, server, partial(ScriptedEngine, load_s, failure), Reporter()))


class ScriptedEngine:
    """An EngineHandle."""

    def __init__(self, load_s: float, failure: Exception | None, on_progress: Tell, on_death: Tell) -> None:
        self._is_at_end = threading.Event()
        self._link = ScriptedLink(self._write_x)
        self._load_s, self._failure, self._on_death = load_s, failure, on_death
        on_progress("weights")
        signal.signal(signal.SIGUSR1, self._die)
        signal.signal(signal.SIGUSR2, lambda *_: self._is_at_end.set())

    async def ready(self) -> tuple[Any, Any]:
        await asyncio.sleep(self._load_s)
        if self._failure is not None:
            raise self._failure
        return make_engine_client(link=self._link, limits=ROOM), engine_info()

    def shutdown(self) -> None:
        print("the engine is asked to end")
        self._link.die("the engine was shut down")

    def kill(self) -> None:
        self._link.die("the engine was killed")

    def _die(self, *signal_and_frame: object) -> None:
        self._link.die("the engine died")
        self._on_death("the engine died: signal 9")

    def _write_x(self, request: UserMsg) -> Iterable[Item]:
        while not self._is_at_end.is_set():
            yield from (ord("x"), 0.01)
        yield EOS


def tokenize_for_ever(*args: object) -> bytes:
    print("a text is tokenized", flush=True)
    threading.Event().wait()
    return b""

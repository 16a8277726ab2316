"""`serve`: everything that a server is made of, put together and run to its end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from uvicorn.loops.auto import auto_loop_factory

from minisgl.llm import LLMConfig
from minisgl.llm.text_threads import LONG_TEXTS
from minisgl.server.access_log import log_request
from minisgl.server.app import build_app
from minisgl.server.config import ServerConfig
from minisgl.server.endpoints.common import BODIES
from minisgl.server.gate import Gate
from minisgl.server.lifecycle import Lifecycle, StartEngine
from minisgl.server.listener import is_private, listen
from minisgl.server.logs import install_logs
from minisgl.server.metrics import Metrics
from minisgl.server.records import CloseHook, RequestBook
from minisgl.server.reporter import Reporter
from minisgl.server.state import ServerState
from minisgl.server.stream.building import WRITER
from minisgl.server.tracing import start_tracing


def serve(config: LLMConfig, server: ServerConfig, start_engine: StartEngine, reporter: Reporter) -> int:
    """Listen, load, serve until a signal; the exit code. ValueError for what cannot work, before anything is loaded.

    The process ends here when a thread still works on a text that nobody waits for: Python would wait for it.
    """
    code = _run(config, server, start_engine, reporter)
    if LONG_TEXTS.is_busy or WRITER.is_busy or BODIES.is_busy:
        _leave(code)
    return code


def _run(config: LLMConfig, server: ServerConfig, start_engine: StartEngine, reporter: Reporter) -> int:
    install_logs(as_json=server.log_json, requests=server.log_requests)
    model_name = server.served_model_name or config.engine.model
    listener = listen(server.host, server.port)
    if server.api_key is None and not is_private(listener):
        reporter.unprotected(server.host)
    with listener, _hooks(server, model_name) as (metrics, hooks):
        state = ServerState(
            config=server,
            model_name=model_name,
            gate=Gate(config.engine.max_running_req or 0, server.max_queued),
            metrics=metrics,
            book=RequestBook(hooks),
        )
        lifecycle = Lifecycle(build_app(state), listener, start_engine, reporter)
        with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
            return runner.run(lifecycle.run())


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it, or it is closed
            stream.flush()
    os._exit(code)


@contextmanager
def _hooks(server: ServerConfig, model_name: str) -> Iterator[tuple[Metrics, list[CloseHook]]]:
    """Who is told of every request that is over. The last spans are sent on the way out."""
    metrics = Metrics()
    hooks: list[CloseHook] = [metrics.count, log_request]
    tracing = start_tracing(server.otlp_endpoint, model_name)
    if tracing is None:
        yield metrics, hooks
        return
    try:
        yield metrics, [*hooks, tracing]
    finally:
        tracing.close()

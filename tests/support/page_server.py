"""The application in a thread of the test's process, on a port that a browser reaches."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from support.live_server import free_port


@contextmanager
def page_server(app: Starlette, port: int | None = None) -> Iterator[str]:
    """Its address, without a slash at the end. port: None takes a free one."""
    port = port or free_port()
    config = uvicorn.Config(
        app, "127.0.0.1", port, lifespan="off", access_log=False, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="page-server")
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)

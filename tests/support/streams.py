"""Streams that are read in threads of their own, and waiting for what other processes do."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from support.live_server import LiveServer

FOR_EVER = {"prompt": "hi", "max_tokens": 100_000, "stream": True}


def status_of_health(server: LiveServer) -> tuple[int, Any] | None:
    try:
        return server.get("/health")
    except (OSError, http.client.HTTPException):
        return None


def wait_until(holds: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


class Stream(threading.Thread):
    """A completion that is read to its end. events: what came in `data:` lines so far."""

    def __init__(self, port: int, **changes: Any) -> None:
        super().__init__(daemon=True)
        self.events: list[Any] = []
        self._port, self._body = port, json.dumps({**FOR_EVER, **changes})
        self.start()
        wait_until(lambda: len(self.events) > 2)

    def run(self) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)) as connection:
            connection.request("POST", "/v1/completions", self._body, {"Content-Type": "application/json"})
            with connection.getresponse() as response, suppress(http.client.HTTPException, OSError):
                for line in response:
                    self._take(line)

    def to_the_end(self) -> Any:
        """The last event."""
        self.join(120)
        assert not self.is_alive(), "the stream never ended"
        return self.events[-1]

    def _take(self, line: bytes) -> None:
        name, _, text = line.strip().partition(b": ")
        if name == b"data":
            self.events.append("[DONE]" if text == b"[DONE]" else json.loads(text))

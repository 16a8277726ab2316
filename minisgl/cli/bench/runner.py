"""One run against one server, from its first request to its last."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from minisgl.cli.address import Address
from minisgl.cli.bench.answer import message_of
from minisgl.cli.bench.connections import Connections
from minisgl.cli.bench.datasets import Conversation
from minisgl.cli.bench.load import Load, Plan, Result
from minisgl.cli.bench.report import Clock
from minisgl.utils.progress import ProgressBar


class Bench:
    """One run against one server. model: its name there, once it is known."""

    def __init__(
        self, address: Address, headers: dict[str, str], plan: Plan, conversations: Sequence[Conversation]
    ) -> None:
        self.results: list[Result] = []
        self.model = ""
        self._address = address
        self._headers = headers
        self._plan = plan
        self._conversations = conversations

    def run(self, model: str | None, rate: float | None, concurrency: int, seed: int) -> Clock:
        """Send everything; how long it took."""
        return _run_loop(self._run(model, rate, concurrency, seed))

    async def _run(self, model: str | None, rate: float | None, concurrency: int, seed: int) -> Clock:
        async with Connections(self._address, self._headers) as connections:
            self.model = model or await _first_model(connections)
            plan = dataclasses.replace(self._plan, fields={"model": self.model, **self._plan.fields})
            total = sum(len(conversation.questions) for conversation in self._conversations)
            with ProgressBar("sending", total, "requests") as bar:
                load = Load(connections, plan, self._note(bar))
                wall, cpu = time.perf_counter(), time.process_time()
                if rate is None:
                    await load.run_concurrently(self._conversations, concurrency)
                else:
                    await load.run_at_rate(self._conversations, rate, seed)
                return Clock(time.perf_counter() - wall, time.process_time() - cpu)

    def _note(self, bar: ProgressBar) -> Callable[[Result], None]:
        def note(result: Result) -> None:
            self.results.append(result)
            bar.advance()

        return note


async def _first_model(connections: Connections) -> str:
    """What the server calls its model. ValueError when its answer has none."""
    parts: list[bytes] = []
    status = await connections.request("GET", "/v1/models", b"", parts.append)
    body = b"".join(parts)
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"/v1/models names no model (HTTP {status}: {message_of(body)}); --model does") from None


def _run_loop(coroutine: Coroutine[Any, Any, Clock]) -> Clock:
    """In uvloop's event loop where it is installed: at a thousand streams it halves what the client costs."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(coroutine)

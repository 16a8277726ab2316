"""The one path of every request that generates: pass the gate, prepare, run, write, and be told of whatever ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from starlette.types import Receive, Scope, Send

from minisgl.llm import EngineDied
from minisgl.llm.client import Prepared
from minisgl.llm.stream import Output
from minisgl.llm.submission import Delta
from minisgl.server.errors import ApiError
from minisgl.server.foreword import Foreword
from minisgl.server.middleware import LARGE_ANSWER
from minisgl.server.response_writer import ResponseWriter, wait_for_disconnect
from minisgl.server.running import Cause, Cutoff
from minisgl.server.state import ServerState
from minisgl.server.stream.answer import Answer
from minisgl.server.stream.building import ENTRY_BYTES, are_plain, build, cost_of_events, cost_of_whole
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)
DO_NOT_RETRY = {"x-should-retry": "false"}  # OpenAI's clients would send it twice more, to take as long again
Ending = Literal["ok", "disconnect", "timeout", "abort", "error"]


class RequestObserver(Protocol):
    """Watches one request, in the event loop's thread. It is made when the request arrives."""

    def started(self, request_id: str, endpoint: str, prepared: Sequence[Prepared]) -> None:
        """It is tokenized and let in. request_id: ours. endpoint: such as "/v1/completions"."""
        ...

    def numbered(self, uids: tuple[int, ...]) -> None:
        """The engine has got it, and knows its sequences by these."""
        ...

    def deltas(self, deltas: list[Delta]) -> None:
        """News of it has come; before it is written out."""
        ...

    def finished(self, ending: Ending, outputs: Sequence[Output]) -> None:
        """Called once after `started`, whatever happens. outputs: of the prompts that came to their end."""
        ...


@dataclass(frozen=True)
class Job:
    """What an endpoint wants generated.

    endpoint: its path. request_id: ours. names: by which /abort_request finds it. num_sequences: choices of all its
    prompts. explain: it is to be said why its prompts are computed. prepare: tokenizes and checks; raises ApiError.
    answer: made of what was prepared.
    """

    endpoint: str
    request_id: str
    names: tuple[str, ...]
    num_sequences: int
    stream: bool
    explain: bool
    prepare: Callable[[], Awaitable[list[Prepared]]]
    answer: Callable[[list[Prepared]], Answer]


class Generation:
    """The response that runs a job; plain ASGI. Whenever the client leaves, at any phase, the job is aborted.

    Errors before the first byte are raised as ApiError; after it they are the stream's last event.
    """

    def __init__(self, state: ServerState, job: Job) -> None:
        self._state = state
        self._job = job
        self._engine = state.ready_engine()
        self._observer: RequestObserver = state.observe()
        self._cutoff = Cutoff(state.config.request_timeout)
        self._outputs: dict[int, Output] = {}
        self._foreword: Foreword | None = None  # until all prompts of a request to be explained are admitted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = ResponseWriter(scope, send)
        watcher = asyncio.create_task(self._watch(receive))
        if self._job.stream and self._state.config.stream_ping_interval:
            writer.keep_alive(self._state.config.stream_ping_interval)
        try:
            async with self._cutoff:
                await self._serve(writer)
        except Exception as error:
            if (told := self._told(error)) is not None:
                await writer.fail(told)
        finally:
            writer.stop_pinging()
            watcher.cancel()

    def _told(self, error: Exception) -> ApiError | None:
        """What the client hears of it; None when it has left."""
        cause = self._cutoff.cause
        if isinstance(error, TimeoutError) and cause is not None:
            return None if cause == "disconnect" else _cut_error(cause)
        if isinstance(error, ApiError):
            return error
        if isinstance(error, EngineDied):
            logger.error("request %s: %s", self._job.request_id, error)
            return ApiError(503, "the engine has died", code="engine_dead")
        logger.error("request %s broke", self._job.request_id, exc_info=error)
        return ApiError(500, "the server could not go on with this request; its log says more")

    async def _watch(self, receive: Receive) -> None:
        await wait_for_disconnect(receive)
        self._cutoff.cut("disconnect")

    async def _serve(self, writer: ResponseWriter) -> None:
        """The gate comes first, so that no more is tokenized, and held, than may run and wait.

        The place there is given back when the engine is done, however slowly the client reads.
        """
        job, state = self._job, self._state
        with state.running.enter(job.names, self._cutoff), state.gate.enter(job.num_sequences) as leave:
            await self._observe(await job.prepare(), writer, leave)

    async def _observe(self, prepared: list[Prepared], writer: ResponseWriter, leave: Callable[[], None]) -> None:
        """Whatever happens, the observer hears of it."""
        self._observer.started(self._job.request_id, self._job.endpoint, prepared)
        ending: Ending = "error"
        try:
            await self._run(prepared, self._job.answer(prepared), writer, leave)
            ending = "ok"
        except asyncio.CancelledError:
            ending = self._cutoff.cause or "timeout"
            raise
        finally:
            self._observer.finished(ending, [self._outputs[index] for index in sorted(self._outputs)])

    async def _run(
        self, prepared: list[Prepared], answer: Answer, writer: ResponseWriter, leave: Callable[[], None]
    ) -> None:
        self._foreword = Foreword(prepared, self._engine.tokenizer) if self._job.explain else None
        on_news = partial(self._write_at_once, answer, writer)
        news = self._engine.run(
            prepared,
            keep_text=not self._job.stream,
            on_start=self._observer.numbered,
            on_over=leave,
            on_news=on_news,
        )
        async with aclosing(news) as steps:
            async for deltas in steps:
                self._take(deltas)
                if self._foreword is not None:
                    deltas = self._begin(self._foreword, writer, deltas)
                if self._job.stream:
                    cost = cost_of_events(deltas)
                    async with self._room(cost):
                        await writer.write(await build(cost, answer.events, deltas))
        outputs = [self._outputs[index] for index in range(len(prepared))]
        if self._job.stream:
            await writer.end(answer.end(outputs))
        else:
            cost = cost_of_whole(outputs)
            async with self._room(cost):
                await writer.whole(await build(cost, answer.whole, outputs), holds_room=_is_large(cost))

    def _room(self, cost: int) -> AbstractAsyncContextManager[None]:
        """Among all answers that clients have not read yet; waits for it when the answer is large."""
        return self._state.answers.hold(cost * ENTRY_BYTES) if _is_large(cost) else nullcontext()

    def _begin(self, foreword: Foreword, writer: ResponseWriter, deltas: list[Delta]) -> list[Delta]:
        """Deltas that can be written now. Sets the headers once they are known.

        A stream that has begun with a comment goes without them.
        """
        foreword.hear(deltas)
        if foreword.is_complete:
            self._foreword = None
            writer.headers = foreword.headers()
        return foreword.hold(deltas) if self._job.stream else []

    def _write_at_once(self, answer: Answer, writer: ResponseWriter, deltas: list[Delta]) -> bool:
        """The same for what comes between a stream's first words and its last, when nothing has to wait for it."""
        if self._foreword is not None or not (writer.is_clear() and are_plain(deltas)):
            return False
        self._observer.deltas(deltas)
        writer.write_at_once(answer.events(deltas))
        return True

    def _take(self, deltas: list[Delta]) -> None:
        """Note what has come. ApiError when a part of the request cannot come to a good end: then all of it ends."""
        self._observer.deltas(deltas)
        for delta in deltas:
            if (output := delta.get("output")) is not None:
                self._outputs[delta["index"]] = output
            if delta["finish_reason"] in ("abort", "error"):
                raise self._broken(delta)

    def _broken(self, delta: Delta) -> ApiError:
        if delta["finish_reason"] == "abort" or self._state.gate.is_draining:
            return ApiError(503, "the engine is shutting down", code="server_shutting_down")
        reason = delta["output"].get("error") if "output" in delta else None
        logger.error("request %s failed in the engine: %r", self._job.request_id, reason)
        return ApiError(500, "the engine could not go on with this request; the server's log says more")


def _is_large(cost: int) -> bool:
    return cost * ENTRY_BYTES >= LARGE_ANSWER


def _cut_error(cause: Cause) -> ApiError:
    if cause == "abort":
        return ApiError(400, "the request was aborted by /abort_request", code="request_aborted")
    return ApiError(503, "the request took longer than the server allows", code="request_timeout", headers=DO_NOT_RETRY)

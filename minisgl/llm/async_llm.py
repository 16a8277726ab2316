"""`AsyncLLM`: the same engine for asyncio programs; the server wraps it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Hashable
from functools import partial
from typing import Any

from minisgl.core import SamplingParams
from minisgl.llm.client import Delta, Messages, Prepared, Prompt, Submission
from minisgl.llm.llm import LLM
from minisgl.llm.stream import Arrival, Output


class AsyncLLM:
    """Keywords as for `LLM`. Loading blocks: make it in `asyncio.to_thread` if other work must go on meanwhile.

    Tokenizing runs in a thread. A request is aborted when its iterator is closed, its task cancelled, or by `abort`
    with the request_id that it was given; ids in use at the same time must differ (ValueError).
    """

    def __init__(self, model: str = "smollm2", **config: Any) -> None:
        self.llm = LLM(model, **config)
        self._running: dict[Hashable, _Running] = {}

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def generate(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None, *, request_id: Hashable = None
    ) -> Output:
        """The whole output for one prompt, a text or token ids. Errors as in `LLM.generate`."""
        return await _output_of(self.stream(prompt, sampling_params, request_id=request_id))

    async def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: Hashable = None,
        **template: Any,
    ) -> Output:
        """The model's next message in a conversation."""
        return await _output_of(self.stream_chat(messages, sampling_params, request_id=request_id, **template))

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None, *, request_id: Hashable = None
    ) -> AsyncGenerator[Delta, None]:
        """Deltas for one prompt as they come."""
        return self._follow(partial(self.llm.client.prepare, prompt, sampling_params), request_id)

    def stream_chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: Hashable = None,
        **template: Any,
    ) -> AsyncGenerator[Delta, None]:
        """Deltas of the model's next message as they come."""
        return self._follow(partial(self.llm.client.prepare_chat, messages, sampling_params, template), request_id)

    def abort(self, request_id: Hashable) -> bool:
        """Stop that request; its reader gets what there is, with finish_reason "abort". False if it is not running.

        To be called in the event loop's thread, like everything here.
        """
        running = self._running.get(request_id)
        if running is not None:
            running.abort()
        return running is not None

    async def shutdown(self) -> None:
        """Abort what is open and end the worker."""
        await asyncio.to_thread(self.llm.shutdown)

    async def _follow(self, prepare: Callable[[], Prepared], request_id: Hashable) -> AsyncGenerator[Delta, None]:
        key = object() if request_id is None else request_id
        if key in self._running:
            raise ValueError(f"request_id {request_id!r} is in use")
        running = self._running[key] = _Running()
        try:
            submission = self.llm.client.submission([await asyncio.to_thread(prepare)])
            running.start(submission)
            while not submission.is_over:
                delta = submission.take(await running.replies.get())
                if delta is not None:
                    yield delta
        finally:
            del self._running[key]
            running.close()


class _Running:
    """A request from the moment it was asked for: it may be aborted while it is still being tokenized."""

    def __init__(self) -> None:
        self.replies: asyncio.Queue[Arrival] = asyncio.Queue()
        self._submission: Submission | None = None
        self._aborted = False

    def start(self, submission: Submission) -> None:
        self._submission = submission
        submission.start(_threadsafe(self.replies))
        if self._aborted:
            submission.abort()

    def abort(self) -> None:
        self._aborted = True
        if self._submission is not None:
            self._submission.abort()

    def close(self) -> None:
        if self._submission is not None:
            self._submission.close()


def _threadsafe(replies: asyncio.Queue[Arrival]) -> Callable[[Arrival], None]:
    """Puts into `replies` from any thread; what comes after the event loop has closed is dropped."""
    loop = asyncio.get_running_loop()

    def put(arrival: Arrival) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(replies.put_nowait, arrival)

    return put


async def _output_of(deltas: AsyncGenerator[Delta, None]) -> Output:
    output: Output | None = None
    async with contextlib.aclosing(deltas):
        async for delta in deltas:
            output = delta.get("output", output)
    assert output is not None, "a stream ended without its output"
    return output

"""`AsyncLLM`: the same engine for asyncio programs; the server wraps it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any

from minisgl.core import SamplingParams
from minisgl.llm.client import Chunk, Messages, Prepared, Prompt, Submission
from minisgl.llm.llm import LLM
from minisgl.llm.stream import Output
from minisgl.message import TokenReply


class AsyncLLM:
    """Keywords as for `LLM`. Loading blocks: make it in `asyncio.to_thread` if other work must go on meanwhile.

    Tokenizing runs in a thread. A request is aborted when its iterator is closed, its task cancelled, or by `abort`
    with the request_id that it was given; ids in use at the same time must differ (ValueError).
    """

    def __init__(self, model: str = "smollm2", **config: Any) -> None:
        self.llm = LLM(model, **config)
        self._submissions: dict[Hashable, Submission] = {}

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

    async def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None, *, request_id: Hashable = None
    ) -> AsyncIterator[Chunk]:
        """Chunks for one prompt as they come."""
        params = sampling_params or SamplingParams()
        prepared = await asyncio.to_thread(self.llm.client.prepare, prompt, params)
        async for chunk in self._follow(prepared, request_id):
            yield chunk

    async def stream_chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: Hashable = None,
        **template: Any,
    ) -> AsyncIterator[Chunk]:
        """Chunks of the model's next message as they come."""
        params = sampling_params or SamplingParams()
        prepared = await asyncio.to_thread(self.llm.client.prepare_chat, messages, params, template)
        async for chunk in self._follow(prepared, request_id):
            yield chunk

    def abort(self, request_id: Hashable) -> bool:
        """Stop that request; its reader gets what there is, with finish_reason "abort". False if it is not running."""
        submission = self._submissions.get(request_id)
        if submission is not None:
            submission.abort()
        return submission is not None

    async def shutdown(self) -> None:
        """Abort what is open and end the worker."""
        await asyncio.to_thread(self.llm.shutdown)

    async def _follow(self, prepared: Prepared, request_id: Hashable) -> AsyncIterator[Chunk]:
        key = object() if request_id is None else request_id
        if key in self._submissions:
            raise ValueError(f"request_id {request_id!r} is in use")
        replies: asyncio.Queue[TokenReply] = asyncio.Queue()
        submission = self.llm.client.submit([prepared], _threadsafe(replies))
        self._submissions[key] = submission
        try:
            while not submission.is_over:
                chunk = submission.take(await replies.get())
                if chunk is not None:
                    yield chunk
        finally:
            del self._submissions[key]
            submission.close()


def _threadsafe(replies: asyncio.Queue[TokenReply]) -> Callable[[TokenReply], None]:
    """Puts into `replies` from any thread; what comes after the event loop has closed is dropped."""
    loop = asyncio.get_running_loop()

    def put(reply: TokenReply) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(replies.put_nowait, reply)

    return put


async def _output_of(chunks: AsyncIterator[Chunk]) -> Output:
    output: Output | None = None
    async for chunk in chunks:
        output = chunk.get("output", output)
    assert output is not None, "a stream ended without its output"
    return output

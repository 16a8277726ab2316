"""`AsyncLLM`: the same engine for asyncio programs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import Any

from minisgl.core import SamplingParams
from minisgl.llm.async_client import AsyncClient
from minisgl.llm.client import Prepared
from minisgl.llm.encoder import Messages, Prompt, is_batch
from minisgl.llm.llm import LLM
from minisgl.llm.run import Run
from minisgl.llm.stream import Output
from minisgl.llm.submission import Delta

_CHAT_KEYWORDS = ("sampling_params", "request_id", "cache_salt", "priority")


class AsyncLLM:
    """Keywords as for `LLM`. Loading blocks: make it in `asyncio.to_thread` if other work must go on meanwhile.

    Tokenizing runs in a thread. A request is aborted when its iterator is closed, its task cancelled, or by `abort`
    with the request_id that it was given; ids in use at the same time must differ (ValueError). client: many prompts
    at once, statistics, probe, explain, purge and flush.
    """

    def __init__(self, model: str = "smollm2", **config: Any) -> None:
        self.llm = LLM(model, **config)
        self.client = AsyncClient(self.llm.client)
        self._running: dict[Hashable, _Running] = {}

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: Hashable = None,
        cache_salt: str = "",
        priority: int = 0,
    ) -> Output:
        """The whole output for one prompt, a text or token ids. Errors, salt and priority as in `LLM.generate`."""
        return await _output_of(
            self.stream(prompt, sampling_params, request_id=request_id, cache_salt=cache_salt, priority=priority)
        )

    async def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: Hashable = None,
        cache_salt: str = "",
        priority: int = 0,
        template: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Output:
        """The model's next message in one conversation. template, keywords: as for `LLM.chat`."""
        named: dict[str, Any] = {"request_id": request_id, "cache_salt": cache_salt, "priority": priority}
        return await _output_of(self.stream_chat(messages, sampling_params, template=template, **named, **keywords))

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: Hashable = None,
        cache_salt: str = "",
        priority: int = 0,
    ) -> AsyncGenerator[Delta, None]:
        """Deltas for one prompt as they come; what its reader was too slow for is one delta."""
        prepare = partial(self.client.prepare, prompt, sampling_params, cache_salt=cache_salt, priority=priority)
        return self._follow(prepare, request_id)

    def stream_chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: Hashable = None,
        cache_salt: str = "",
        priority: int = 0,
        template: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> AsyncGenerator[Delta, None]:
        """Deltas of the model's next message as they come. template, keywords: as for `LLM.chat`."""
        if is_batch(messages):
            raise ValueError("messages are several conversations: an AsyncLLM takes one a call, and many calls at once")
        variables = self.client.client.encoder.template_kwargs(template, keywords, _CHAT_KEYWORDS)
        prepare = partial(
            self.client.prepare_chat, messages, sampling_params, variables, cache_salt=cache_salt, priority=priority
        )
        return self._follow(prepare, request_id)

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

    async def _follow(
        self, prepare: Callable[[], Awaitable[Prepared]], request_id: Hashable
    ) -> AsyncGenerator[Delta, None]:
        key = object() if request_id is None else request_id
        if key in self._running:
            raise ValueError(f"request_id {request_id!r} is in use")
        running = self._running[key] = _Running()
        try:
            async for deltas in running.start(self.client.start([await prepare()])):
                for delta in deltas:
                    yield delta
        finally:
            del self._running[key]
            running.close()


class _Running:
    """A request from the moment it was asked for: it may be aborted while it is still being tokenized."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._aborted = False

    def start(self, run: Run) -> Run:
        self._run = run
        if self._aborted:
            run.abort()
        return run

    def abort(self) -> None:
        self._aborted = True
        if self._run is not None:
            self._run.abort()

    def close(self) -> None:
        if self._run is not None:
            self._run.close()


async def _output_of(deltas: AsyncGenerator[Delta, None]) -> Output:
    output: Output | None = None
    async with contextlib.aclosing(deltas):
        async for delta in deltas:
            output = delta.get("output", output)
    assert output is not None, "a stream ended without its output"
    return output

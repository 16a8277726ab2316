"""`AsyncClient`: a client for one event loop, whose thread makes text of tokens; the link's only brings replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from minisgl.core import Limits, SamplingParams
from minisgl.core.picture import NodeUse, TreePicture
from minisgl.llm.client import Client, Place, Prepared, Probe
from minisgl.llm.encoder import Messages, Prompt
from minisgl.llm.explained import Explained
from minisgl.llm.run import Mail, OnNews, OnOver, Run
from minisgl.llm.submission import Delta
from minisgl.llm.text_threads import in_thread, prompt_size, size_of
from minisgl.message import Activity, EngineStats, SlowQuestion
from minisgl.message.questions import AnswerT
from minisgl.tokenizer import Tokenizer
from minisgl.utils.arrays import NO_IDS, Int32Array

OnStart = Callable[[tuple[int, ...]], None]


def _do_nothing() -> None:
    pass


def _heed_none(uids: tuple[int, ...]) -> None:
    pass


def _leave_it(deltas: list[Delta]) -> bool:
    return False


class AsyncClient:
    """All methods belong to the event loop's thread. EngineDied from any of them when the engine has."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._mail: Mail | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        return self.client.tokenizer

    @property
    def limits(self) -> Limits:
        return self.client.limits

    async def prepare(
        self, prompt: Prompt, params: SamplingParams | None, *, cache_salt: str = "", priority: int = 0
    ) -> Prepared:
        """Tokenize in a thread, and check. ValueError for what can never run (ContextLengthError when too long)."""
        return await in_thread(prompt_size(prompt), self.client.prepare, prompt, params, cache_salt, priority)

    async def prepare_chat(
        self,
        messages: Messages,
        params: SamplingParams | None,
        template: Mapping[str, Any],
        *,
        cache_salt: str = "",
        priority: int = 0,
    ) -> Prepared:
        """Prepare a conversation, by the model's chat template. template: keywords of `Tokenizer.render`."""
        prepare = self.client.prepare_chat
        return await in_thread(size_of(messages), prepare, messages, params, template, cache_salt, priority)

    async def run(
        self,
        prepared: Sequence[Prepared],
        *,
        keep_text: bool = True,
        on_start: OnStart = _heed_none,
        on_over: OnOver = _do_nothing,
        on_news: OnNews = _leave_it,
    ) -> AsyncGenerator[list[Delta], None]:
        """Start them together; all that has come since the last time, never an empty list, until all are over.

        Closing the generator aborts what still runs. What an unhurried reader has not taken yet is merged: one delta
        for each choice, however many tokens. keep_text: outputs have text and logprobs; who streams has had them.
        on_start: called, in the loop, with the uids by which the engine knows them, choice by choice.
        on_over: called, in the loop, as soon as the engine is done with them, while the reader may still be busy with
        what came before; maybe more than once.
        on_news: called, in the loop, with what has come while the reader waits for it; the reader gets what it does
        not want (False), and what it raises. It costs a fraction of what waking the reader does.
        """
        run = self.start(prepared, keep_text, on_over, on_news)
        try:
            on_start(run.uids)
            async for deltas in run:
                yield deltas
        finally:
            run.close()

    def start(
        self,
        prepared: Sequence[Prepared],
        keep_text: bool = True,
        on_over: OnOver = _do_nothing,
        on_news: OnNews = _leave_it,
    ) -> Run:
        """The same, in the hands of somebody who may also abort it and read on; to be closed."""
        run = Run(self.client.submission(prepared, keep_text), self._mail_here(), on_over, on_news)
        run.start()
        return run

    async def stats(self) -> EngineStats:
        """Counters and sizes of scheduler and cache, as they are now."""
        return await asyncio.wrap_future(self.client.ask_stats())

    async def activity(self, since: int = 0) -> Activity:
        """What was done from step `since` on, and what is being done. Steps are recorded for 30 s from now on."""
        return await asyncio.wrap_future(self.client.ask_activity(since))

    async def probe(self, prompt: Prompt, *, cache_salt: str = "") -> Probe:
        """How much of this prompt is cached now. ValueError for one that can never run."""
        ids = await in_thread(prompt_size(prompt), self.client.encoder.ids, prompt)
        return await self._probe(ids, cache_salt)

    async def probe_chat(self, messages: Messages, template: Mapping[str, Any], *, cache_salt: str = "") -> Probe:
        """The same for a conversation."""
        ids = await in_thread(size_of(messages), self.client.encoder.chat_ids, messages, template)
        return await self._probe(ids, cache_salt)

    async def explain(self, prompt: Prompt, *, cache_salt: str = "") -> Explained:
        """Why this prompt's tokens would be computed now, or not. ValueError for one that can never run."""
        ids = await in_thread(prompt_size(prompt), self.client.encoder.ids, prompt)
        return await self._explain(ids, cache_salt)

    async def explain_chat(self, messages: Messages, template: Mapping[str, Any], *, cache_salt: str = "") -> Explained:
        """The same for a conversation."""
        ids = await in_thread(size_of(messages), self.client.encoder.chat_ids, messages, template)
        return await self._explain(ids, cache_salt)

    async def tree(self, node: int | None, max_nodes: int, head_len: int) -> TreePicture | None:
        """As `Client.tree_question`."""
        return await self._ask(self.client.tree_question(node, max_nodes, head_len))

    async def node_use(self, node: int, tail_len: int) -> NodeUse | None:
        """As `Client.node_question`."""
        return await self._ask(self.client.node_question(node, tail_len))

    async def place(self, prompt: Prompt, *, cache_salt: str = "") -> Place:
        """Where in the tree this prompt lies. ValueError for one that can never run."""
        ids = await in_thread(prompt_size(prompt), self.client.encoder.ids, prompt)
        return await self._place(ids, cache_salt)

    async def place_chat(self, messages: Messages, template: Mapping[str, Any], *, cache_salt: str = "") -> Place:
        """The same for a conversation."""
        ids = await in_thread(size_of(messages), self.client.encoder.chat_ids, messages, template)
        return await self._place(ids, cache_salt)

    async def purge_cache(self, prefix: Prompt | None = None, *, cache_salt: str | None = "") -> int:
        """As `LLM.purge_cache`."""
        ids = NO_IDS if prefix is None else await in_thread(prompt_size(prefix), self.client.encoder.prefix_ids, prefix)
        return await asyncio.wrap_future(self.client.purge_cache(ids, cache_salt))

    async def purge_chat(self, messages: Messages, template: Mapping[str, Any], *, cache_salt: str | None = "") -> int:
        """The same for conversations that begin with these messages."""
        ids = await in_thread(size_of(messages), self.client.encoder.chat_prefix_ids, messages, template)
        return await asyncio.wrap_future(self.client.purge_cache(ids, cache_salt))

    async def flush_cache(self) -> None:
        """Nothing that was cached until now is matched any more; requests that run keep what they hold."""
        await asyncio.wrap_future(self.client.purge_cache())

    async def _ask(self, question: SlowQuestion[AnswerT]) -> AnswerT:
        """Who is cancelled leaves no work behind: answers that nobody waits for must not hold up others."""
        try:
            return await asyncio.wrap_future(self.client.ask(question))
        except asyncio.CancelledError:
            self.client.leave(question)
            raise

    async def _place(self, ids: Int32Array, cache_salt: str) -> Place:
        return Place(len(ids), await asyncio.wrap_future(self.client.ask_path(ids, cache_salt)))

    async def _probe(self, ids: Int32Array, cache_salt: str) -> Probe:
        return Probe(len(ids), await asyncio.wrap_future(self.client.ask_cached(ids, cache_salt)))

    async def _explain(self, ids: Int32Array, cache_salt: str) -> Explained:
        return Explained(ids, await asyncio.wrap_future(self.client.ask_explained(ids, cache_salt)))

    def _mail_here(self) -> Mail:
        loop = asyncio.get_running_loop()
        if self._mail is None or self._mail.loop is not loop:
            self._mail = Mail(loop)
        return self._mail

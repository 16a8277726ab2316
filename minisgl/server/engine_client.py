"""What the routes need of an engine: `minisgl.llm.AsyncClient`, to which tests give a scripted link."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Protocol

from minisgl.core import Limits, SamplingParams
from minisgl.core.picture import NodeUse, TreePicture
from minisgl.llm.client import Place, Prepared, Probe
from minisgl.llm.encoder import Messages, Prompt
from minisgl.llm.explained import Explained
from minisgl.llm.submission import Delta
from minisgl.message import Activity, EngineStats
from minisgl.tokenizer import Tokenizer


class EngineClient(Protocol):
    """All methods belong to the event loop's thread. llm.EngineDied from any of them when the engine has."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def limits(self) -> Limits: ...

    async def prepare(
        self, prompt: Prompt, params: SamplingParams | None, *, cache_salt: str = "", priority: int = 0
    ) -> Prepared:
        """Tokenize in a thread, and check. ValueError for what can never run (ContextLengthError when too long)."""
        ...

    async def prepare_chat(
        self,
        messages: Messages,
        params: SamplingParams | None,
        template: Mapping[str, Any],
        *,
        cache_salt: str = "",
        priority: int = 0,
    ) -> Prepared:
        """The same for a conversation, by the model's chat template."""
        ...

    def run(
        self,
        prepared: Sequence[Prepared],
        *,
        keep_text: bool = True,
        on_start: Callable[[tuple[int, ...]], None] = ...,
        on_over: Callable[[], None] = ...,
        on_news: Callable[[list[Delta]], bool] = ...,
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
        ...

    async def stats(self) -> EngineStats:
        """Counters and sizes of scheduler and cache, as they are now."""
        ...

    async def activity(self, since: int = 0) -> Activity:
        """What was done from step `since` on, and what is being done. Steps are recorded for 30 s from now on."""
        ...

    async def probe(self, prompt: Prompt, *, cache_salt: str = "") -> Probe:
        """How much of this prompt is cached now. ValueError for one that can never run."""
        ...

    async def probe_chat(self, messages: Messages, template: Mapping[str, Any], *, cache_salt: str = "") -> Probe:
        """The same for a conversation."""
        ...

    async def explain(self, prompt: Prompt, *, cache_salt: str = "") -> Explained:
        """Why this prompt's tokens would be computed now, or not. ValueError for one that can never run."""
        ...

    async def explain_chat(self, messages: Messages, template: Mapping[str, Any], *, cache_salt: str = "") -> Explained:
        """The same for a conversation."""
        ...

    async def tree(self, node: int | None, max_nodes: int, head_len: int) -> TreePicture | None:
        """The prefix cache's trees, or what is below a node; None if it is gone. The largest `max_nodes` nodes.

        head_len: so many of each one's first token ids.
        """
        ...

    async def node_use(self, node: int, tail_len: int) -> NodeUse | None:
        """Who uses a node; None if it is gone. tail_len: so many of the last token ids of its path."""
        ...

    async def place(self, prompt: Prompt, *, cache_salt: str = "") -> Place:
        """Where in the tree this prompt lies. ValueError for one that can never run."""
        ...

    async def place_chat(self, messages: Messages, template: Mapping[str, Any], *, cache_salt: str = "") -> Place:
        """The same for a conversation."""
        ...

    async def purge_cache(self, prefix: Prompt | None = None, *, cache_salt: str | None = "") -> int:
        """Nothing that was cached until now and begins so is matched any more; the number of tokens freed at once.

        prefix: None is all. cache_salt: None is every one. ValueError for a prefix that no prompt can have.
        """
        ...

    async def purge_chat(self, messages: Messages, template: Mapping[str, Any], *, cache_salt: str | None = "") -> int:
        """The same for conversations that begin with these messages."""
        ...

    async def flush_cache(self) -> None:
        """Nothing that was cached until now is matched any more; requests that run keep what they hold."""
        ...
